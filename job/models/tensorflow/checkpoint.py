"""TensorFlow checkpoint: a meta graph (`*.meta`) and its variables (`*.index` and `*.data-*`, or `*.ckpt`)."""

from typing import Any

from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.loops import has_operator
from cluster_serving.job.models.tensorflow.names import META_FILE, found_names, read_meta
from cluster_serving.job.models.tensorflow.session import SessionModel, tf, with_operators
from cluster_serving.job.options import ModelOptions


class Checkpoint(SessionModel):
    """The graph of a checkpoint with its variables restored.

    The outputs are named by a `graph_meta.json`, else by `ModelOptions`; else the output is the only end of the graph.
    The inputs are those of the `graph_meta.json`, else the placeholders that the outputs need.
    """

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        path = files.paths[0]
        self.careful = has_operator(path, self._LOOPS)
        saver = with_operators(lambda: tf.compat.v1.train.import_meta_graph(str(path), clear_devices=True), path)
        if saver is not None:
            saver.restore(session, str(path.with_suffix("")))
        # Tables are no variables. Files of their content have to be at the path that the graph holds.
        session.run(tf.compat.v1.tables_initializer())
        meta = files.folder / META_FILE
        if meta.exists():
            return read_meta(meta)
        return found_names(path, session.graph, options)
