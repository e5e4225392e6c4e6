"""The annotation page of an audit in a real browser."""

from __future__ import annotations

import time

import datasets
import pytest
from browser import Page, start_browser

from data_pipelines.pixels import thumbnail
from keras_xmr.experiments.reports.pages import data_url, render

pytestmark = pytest.mark.slow

WORDS = "a caption with many words, and one_that_is_much_longer_than_any_that_people_write"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of eight pairs, and one of 120 next to it."""
    folder = tmp_path_factory.mktemp("page")
    photo = datasets.encoded(datasets.picture(1, (600, 400)), "JPEG")
    picture = data_url(thumbnail(photo, "photo", 480), "image/jpeg")
    own = {"text": WORDS, "annotated": [WORDS], "score": 1.0}
    picture = data_url(thumbnail(photo, "photo", 480), "image/jpeg")
    command = "python main.py audit " + WORDS
    for name, count in (("sheet.html", 8), ("sheet.html.many.html", 120)):
        entries = [
            {"image": f"i{n}", "caption": f"c{n}", "picture": picture, **own} for n in range(count)
        ]
        page = render("annotation.html", title="mine: test", entries=entries, command=command)
        (folder / name).write_bytes(page)
    browser = start_browser(tmp_path_factory.mktemp("profile"))
    yield Page(browser, f"file://{folder}/sheet.html")
    browser.quit()


def labelled_later(page, expected):
    """The number of labels as one opens the page later.

    At once, the process of the page may end before it has sent what it writes.
    """
    for seconds in (2.0, *[0.2] * 9):
        time.sleep(seconds)
        page.open("")
        if page.text("#labelled") == expected:
            break
    return page.text("#labelled")


@pytest.mark.parametrize("width", [500, 1280])
def test_nothing_is_cut_and_save_stays_in_sight(page, width):
    page.open("", width)
    assert page.run("return document.documentElement.scrollWidth") == width
    page.run("window.scrollTo(0, 1500)")
    top, bottom = page.run(
        "const box = document.getElementById('save').getBoundingClientRect();"
        "return [box.top, box.bottom]"
    )
    assert 0 <= top < bottom < 100
    assert page.run("return document.querySelector('article img').clientWidth") == 200


def test_keys_mark_and_the_browser_keeps_the_marks(page):
    page.open("")
    assert not page.all("#save:enabled")
    page.press("r", "w", "k", "w", "x")
    page.press("r")
    assert page.text("#labelled") == "3"
    assert page.all("#save:enabled")
    assert page.run("return current") == 3
    page.run(
        "const grade = document.querySelector('#pair-1 input[type=number]');"
        "grade.value = '0.5'; grade.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    assert labelled_later(page, "3") == "3"
    found = page.run("return labelsFile(pairs)").splitlines()
    assert found[1:] == [
        '"i0","c0","0.5"',
        '"i1","c1","0"',
        '"i2","c2","1"',
    ]
    page.run("localStorage.setItem(key, '{')")
    assert labelled_later(page, "0") == "0"
    assert not page.complaints()


def test_pages_of_fifty(page):
    page.open(".many.html")
    page.run("localStorage.clear()")
    page.open(".many.html")
    assert len(page.all("article")) == 50
    assert (page.text("#range"), page.all("#previous:enabled")) == ("1 to 50", [])
    page.click("#next")
    page.click("#next")
    assert (page.text("#range"), len(page.all("article"))) == ("101 to 120", 20)
    assert not page.all("#next:enabled")
    page.click("#previous")
    page.press("k")
    assert page.text("#range") == "1 to 50"
    page.press("r")
    assert page.text("#range") == "51 to 100", "the next pair is on the next page"
    page.click("#pair-60 input[value=wrong]")
    page.press("r")
    assert page.run("return labelsFile(pairs)").splitlines()[1:] == [
        '"i49","c49","1"',
        '"i59","c59","1"',
    ]
    page.open("")
    assert not page.all("#next")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_scheme(page, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page._browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page.open("")
    colours = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    paper, ink = (sum(map(int, colour[4:-1].split(","))) for colour in page.run(colours))
    assert (paper > ink) == (scheme == "light")


def test_a_click_enlarges_an_image(page):
    page.open("")
    page.click("article img")
    assert page.run("return document.querySelector('dialog img').clientWidth") > 400
    page.click("dialog img")
    assert not page.all("dialog")
