"""A headless Chromium, driven by Playwright; it watches what a page does besides what it shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the Chromium of this machine; skips the test if there is none, unless CI demands it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        missing = "no Chromium on PATH: apt-get install chromium"
        if os.environ.get("CLUSTER_SERVING_REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=Path(found), args=list(_FLAGS))
        yield browser
        browser.close()


@contextmanager
def watched(browser: Browser, url: str, **context: object) -> Iterator[Page]:
    """Open a page; at the end, it must have logged no error and asked no other server.

    Answers with an error, which the browser logs too, are not counted: tests provoke them.
    """
    page = browser.new_context(base_url=url, **context).new_page()
    page.set_default_timeout(30_000)
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto("ui")
    yield page
    page.context.close()
    assert [error for error in errors if not error.startswith("Failed to load resource")] == []
    own = (f"{url}/", f"blob:{url}/")
    assert [other for other in asked if not other.startswith(own)] == []
    assert asked


# For each element with a text of its own: its contrast with what is behind it, as WCAG 2 computes it.
CONTRASTS = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = rgba(getComputedStyle(one).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const found = {};
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(".hidden, .skip, noscript")) continue;
    const style = getComputedStyle(element);
    const text = rgba(element instanceof SVGElement ? style.fill : style.color);
    const [one, other] = [luminance(text), luminance(behind(element))].sort((a, b) => b - a);
    found[`${element.tagName}.${element.className.baseVal ?? element.className}: ${element.textContent.slice(0, 40)}`] =
      (one + 0.05) / (other + 0.05);
  }
  return found;
}
"""

# Fields and buttons that a screen reader would have no name for.
NAMELESS = """
() => [...document.querySelectorAll("input, textarea, select, button, a, [role=img], img")]
  .filter((element) => element.checkVisibility() && !(
    element.getAttribute("aria-label") || element.labels?.[0]?.textContent.trim() || element.hasAttribute("alt") ||
    (["BUTTON", "A"].includes(element.tagName) && element.textContent.trim())))
  .map((element) => element.outerHTML)
"""
