"""A real HTTP server that can fail as servers do."""

import threading
from base64 import b64encode
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class WebServer:
    """Serves the files of a folder.

    Attributes:
        fetched: Paths of the bodies that were asked for, without queries.
        failing: Answers that are still to be 503.
        cut: Bodies that are still to end in the middle.
        stalled: While it is set, bodies stop in the middle.
        sized: Answers have the length of their body.
        login: user:password that a request has to have.
        md5: Header Content-MD5 of the answers, or empty.
    """

    def __init__(self, folder):
        self.fetched, self.failing, self.cut, self.sized, self.login, self.md5 = [], 0, 0, True, "", ""
        self.stalled = threading.Event()
        self._ended = threading.Event()
        outer = self

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *arguments):
                super().__init__(*arguments, directory=str(folder))

            def do_GET(self):
                outer.fetched.append(self.path.partition("?")[0])
                super().do_GET()

            def send_head(self):
                if outer.failing:
                    outer.failing -= 1
                    self.send_error(503)
                elif outer.login and self.headers["Authorization"] != outer.authorization:
                    self.send_error(401)
                else:
                    return super().send_head()
                return None

            def send_header(self, keyword, value):
                if outer.sized or keyword not in ("Content-Length", "Last-Modified"):
                    super().send_header(keyword, value)

            def end_headers(self):
                if outer.md5:
                    self.send_header("Content-MD5", outer.md5)
                super().end_headers()

            def copyfile(self, source, outputfile):
                content = source.read()
                half = len(content) // 2
                outputfile.write(content[:half])
                if outer.cut:
                    outer.cut -= 1
                    return
                while outer.stalled.is_set() and not outer._ended.wait(0.05):
                    pass
                outputfile.write(content[half:])

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def authorization(self):
        """The header of a request that has the password."""
        return f"Basic {b64encode(self.login.encode()).decode()}"

    def stop(self):
        """Close the port; later connections are refused."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
