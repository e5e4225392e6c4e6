"""The page of the server, in a real browser."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from browser import Page, start_browser
from small_index import StubEmbedder, photo, small_index

from keras_xmr.search import PhotoIndex, Searcher
from keras_xmr.search.backends import Exact
from keras_xmr.search.photo_table import PhotoTable
from keras_xmr.search.server.process import create_app, listen
from keras_xmr.search.server.requests import Settings
from keras_xmr.search.server.service import Service

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
MANY = 100_000
WIDTHS = (1440, 768, 360)


class Sure(Service):
    """A service that knows probabilities."""

    def find(self, request, images=(), searcher=None):
        result = super().find(request, images, searcher)
        if not (request.texts and result.hits):
            return result
        hits = tuple(
            replace(hit, probability=0.9 - 0.05 * place) for place, hit in enumerate(result.hits)
        )
        return replace(result, hits=hits)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "photos" / "a <b>folder</b>").mkdir(parents=True)
    name = "<img src=x onerror=alert(1)>.jpg"
    (folder / "photos" / "a <b>folder</b>" / name).write_bytes(photo("red", 99, (30, 90)))
    index = small_index(folder)
    service = Sure(index.path, Settings(), load=StubEmbedder)
    service.warm_up()
    return service


@pytest.fixture(scope="module")
def address(service):
    with listen("127.0.0.1", 0) as listener:
        config = uvicorn.Config(create_app(service), log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=partial(server.run, sockets=[listener]))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory, address):
    browser = start_browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


@pytest.fixture
def page(browser, address):
    page = Page(browser, address)
    page.complaints()
    yield page
    # Chromium reports answers that are errors; of everything else there is nothing.
    assert [line for line in page.complaints() if "status of 422" not in line] == []


def is_cut_off(page: Page) -> bool:
    """Whether something reaches over the right edge."""
    return page.run("return document.documentElement.scrollWidth > innerWidth")


def test_a_query(page):
    page.open()
    assert page.text("#summary") == "16 photos"
    assert len(page.all(".hit")) == 16
    page.type("#query", "red wombat\n")
    assert "The best 16 of 16 photos" in page.text("#summary")
    assert "the model does not know: “wombat”" in page.text("#messages")
    page.run("history.back()")
    page.until("return document.querySelector('#summary').innerText === '16 photos'")


def test_scores_are_shown_to_those_who_want_them(page):
    page.open("/?q=red+wombat")
    assert not page.all(".score")
    page.click(".hit .picture")
    assert "score" not in page.text("#facts")
    page.click("#close")
    page.click("#scores")
    scores = [re.sub(r"-?\d\.\d{3}", "S", text) for text in page.texts(".score")]
    assert scores[:2] == ["1\nscore S, match 90 %", "2\nscore S, match 85 %"]
    page.click(".hit .picture")
    assert re.match(r"score -?\d\.\d{3}, match 90 % · ", page.text("#facts"))
    page.open("/?q=red")
    assert page.all(".score"), "the browser remembers it"
    page.click("#scores")
    assert not page.all(".score")


def go_back(page: Page) -> None:
    page.run("history.back()")
    page.wait()


def test_similar_after_typing_keeps_the_query(page):
    page.open()
    page.type("#query", "blue")
    page.until("return location.search === '?q=blue' && document.querySelector('#summary .row')")
    page.wait()
    page.run("document.querySelector('.similar').click()")
    page.until("return location.search.startsWith('?like=')")
    page.wait()
    go_back(page)
    page.until("return document.querySelector('#query').value === 'blue'")
    page.wait()
    assert "The best 16 of 16" in page.text("#summary")
    page.click("#filters summary")
    page.type("#unlike", "red\n")
    go_back(page)
    page.until("return location.search === '?q=blue'")


def test_back_closes_the_large_photo(page):
    page.open("/?q=blue")
    page.click(".hit .picture")
    first = page.text("#facts")
    page.click("#next")
    assert page.text("#facts") != first
    go_back(page)
    page.until("return !document.querySelector('#viewer').open")
    assert page.run("return location.search") == "?q=blue"
    page.run("history.forward()")
    page.until("return document.querySelector('#viewer').open")
    assert page.text("#facts") != first
    page.click("#close")
    page.until("return history.state.view === undefined")
    page.click(".hit .picture")
    page.click("#like")
    page.until("return location.search.startsWith('?like=')")
    page.wait()
    assert not page.all("#viewer")
    go_back(page)
    page.until("return location.search === '?q=blue'")
    page.wait()
    assert not page.all("#viewer")


def test_a_click_beside_the_large_photo_closes_it(page, browser):
    from selenium.webdriver.common.action_chains import ActionChains

    def click_at(x: float, y: float) -> None:
        body = browser.find_element("css selector", "html")
        size = page.run("return [innerWidth, innerHeight]")
        mouse = ActionChains(browser, duration=0)
        mouse.move_to_element_with_offset(body, x - size[0] / 2, y - size[1] / 2)
        mouse.click().perform()

    page.run("scrollTo(0, 0)")
    page.open("/?q=blue")
    frame = "return document.getElementById('{}').getBoundingClientRect().toJSON()"
    for place in ("outside", "letterbox", "photo"):
        page.click(".hit .picture")
        page.until("return document.getElementById('large').naturalWidth")
        dialog, image = page.run(frame.format("viewer")), page.run(frame.format("large"))
        middle = image["top"] + image["height"] / 2
        x = {
            "outside": dialog["left"] / 2,
            "letterbox": image["left"] + 5,
            "photo": image["left"] + image["width"] / 2,
        }[place]
        click_at(x, middle)
        if place == "photo":
            assert page.all("#viewer")
            page.click("#close")
        page.until("return !document.querySelector('#viewer').open")
        page.until("return history.state.view === undefined")


def test_similar_appears_under_the_pointer_with_the_keyboard_and_by_a_long_press(page, browser):
    from selenium.webdriver.common.action_chains import ActionChains

    def visible() -> list[int]:
        return page.run("""return [...document.querySelectorAll('.similar')]
            .flatMap((b, at) => getComputedStyle(b).opacity === '1' ? [at] : [])""")

    page.open("/?q=blue")
    ActionChains(browser).move_to_element(page.all("#query")[0]).perform()
    page.run("document.activeElement.blur()")
    assert visible() == []
    ActionChains(browser).move_to_element(page.all(".picture")[1]).perform()
    page.until("return document.querySelectorAll('.hit')[1].matches(':hover')")
    assert visible() == [1]
    ActionChains(browser).move_to_element(page.all("#query")[0]).perform()
    page.until("return !document.querySelector('.hit:hover')")
    page.run("document.querySelectorAll('.picture')[2].focus({focusVisible: true})")
    assert visible() == [2]
    page.run("document.activeElement.blur()")
    press = """const item = document.querySelectorAll('.hit')[3];
        const event = (name) => item.querySelector('.picture').dispatchEvent(
            new PointerEvent(name, {pointerType: 'touch', bubbles: true}));
        event('pointerdown');
        setTimeout(() => { event('pointerup'); item.querySelector('.picture').click(); }, %d);"""
    page.run(press % 700)
    page.until("return document.querySelector('.held')")
    page.run("return new Promise((done) => setTimeout(done, 400))")
    assert visible() == [3]
    assert not page.all("#viewer"), "the end of a long press opens nothing"
    page.run(press % 50)
    page.until("return document.querySelector('#viewer').open")


def test_the_title_and_the_number_of_photos(page, service, monkeypatch):
    page.open()
    assert page.text("h1") == "photos"
    assert page.run("return document.title") == "photos"
    assert page.text("#count") == "16 photos"
    monkeypatch.setattr(service, "settings", replace(service.settings, title="Ann's <b>best</b>"))
    page.open()
    assert page.text("h1") == page.run("return document.title") == "Ann's <b>best</b>"
    root = service.index.root
    for name, content in (("new.jpg", photo("red", 7)), ("broken.jpg", b"hello")):
        (root / name).write_bytes(content)
    old = service.searcher
    try:
        service.update()
        service.refresh()
        page.run("follow()")
        page.until("return document.querySelector('#summary').innerText.startsWith('17 photos')")
        assert page.text("#count") == "17 photos, 1 more cannot be read"
        assert len(page.all(".hit")) == 17
        page.open("/?q=red")
        (root / "new.jpg").unlink()
        service.update()
        service.refresh()
        page.run("follow()")
        page.until("return document.querySelector('#count').innerText.startsWith('16 photos')")
        assert "17" in page.text("#summary"), "what one searched stays"
    finally:
        (root / "broken.jpg").unlink()
        service.searcher = old


def test_words_that_no_training_caption_has(page, service, monkeypatch):
    words = frozenset({"red", "dog"})
    monkeypatch.setitem(service.index.__dict__, "training_words", words)
    page.open("/?q=red+dogs+giraffe")
    assert page.text("#messages") == "Words that the model does not know: “dogs”, “giraffe”."
    monkeypatch.setattr(StubEmbedder, "unknown_words", lambda self, text: ())
    page.open("/?q=red+dogs+giraffe")
    assert page.text("#messages") == ""
    said = "No training caption has “giraffe”: the model never saw this word with a photo."
    assert page.text("#summary .quiet") == said
    page.open("/?q=zwei+Hunde")
    assert "has “zwei”, “Hunde”: the model never saw these words" in page.text("#summary")
    page.open("/?q=red+dogs")
    assert page.text("#summary .quiet") == ""


def test_without_days_there_are_no_filters_by_day(page):
    page.open("/?since=2021-01-01")
    assert len(page.all(".hit")) == 16, "nothing filters unseen"
    page.click("#filters summary")
    assert page.all("#unlike")
    assert not page.all("#since")


@pytest.fixture
def dated(service, monkeypatch):
    """The service, of an index of which one photo has a day."""
    index = PhotoIndex.open(service.index.path)
    first, *others = index.photos()
    photos = PhotoTable.of([replace(first, taken="2021-06-30T12:00:00"), *others])
    monkeypatch.setitem(index.__dict__, "_photos", photos)
    monkeypatch.setattr(service, "searcher", Searcher(index, embedder=service.embedder))
    service._sort_by_day.cache_clear()
    yield service
    service._sort_by_day.cache_clear()


def test_emoji_and_long_texts_get_a_sentence(page):
    page.open()
    page.run("document.querySelector('#query').value = arguments[0]; search()", "\N{DOG FACE}")
    page.wait()
    assert page.text(".banner") == (
        "The text '\N{DOG FACE}' has no words: say in words what the photo shows."
    )
    page.open(f"/?q={'x' * 2001}")
    assert page.text(".banner") == "A text has at most 2,000 characters, not 2,001."


def test_search_as_one_types(page):
    page.open()
    for text in ("re", "d womb"):
        page.type("#query", text)
        page.until("return document.querySelector('#summary .row')")
        page.until("return location.search.includes('q=re')")
    page.until("return location.search === '?q=red+womb'")
    page.until("return document.title === 'red womb'")
    page.wait()
    assert not page.texts(".banner")  # "womb" may go on.
    page.type("#query", "\n")
    assert "“womb”" in page.text(".banner.unsure")
    # All that was typed is one entry of the history.
    page.run("history.back()")
    page.until("return document.querySelector('#query').value === ''")


def test_an_original_is_opened(page, service):
    page.open("/?q=red")
    page.click(".hit .picture")
    address = page.run("return document.getElementById('original').href")
    size = page.run("""
        const image = new Image();
        image.src = document.getElementById('original').href;
        return image.decode().then(() => [image.naturalWidth, image.naturalHeight]);""")
    photo = service.index.photo(int(address.rpartition("/")[2]))
    assert size == [photo.width, photo.height]


def test_more_like_this_and_not_this(page):
    page.open("/?q=blue")
    page.run("document.querySelector('.similar').click()")
    page.wait()
    assert page.text("#parts") == "like this photo\n×"
    assert page.all(".hit")
    page.click("#filters summary")
    page.type("#unlike", "red, green\n")
    assert "not=red" in page.run("return location.search")
    page.click("#parts button")
    assert page.text("#summary") == "16 photos"


def test_an_upload_of_a_broken_file(page, tmp_path):
    good, broken = tmp_path / "good.jpg", tmp_path / "broken.jpg"
    good.write_bytes(photo("blue"))
    broken.write_bytes(photo("red")[:200])
    page.open()
    page.type("#files", f"{good}\n{broken}")
    assert "broken.jpg is a broken image" in page.text(".banner.problem")
    assert len(page.all("#parts li.broken")) == 1
    assert page.run("return document.querySelector('.hit img').alt").startswith("blue/")
    page.click("#parts li:not(.broken) button")
    assert "broken.jpg is a broken image" in page.text(".banner.problem")
    assert len(page.all("#parts li.broken")) == 1
    assert not page.all(".hit")
    go_back(page)
    page.until("return document.querySelectorAll('#parts li').length === 2")
    page.wait()
    page.open()
    page.type("#files", str(tmp_path))  # As if it was dropped.
    assert f"cannot be read: {tmp_path.name}: is it a folder" in page.text(".banner.problem")


def test_a_photo_is_dropped(page):
    page.open()
    script = """
        const file = new File([Uint8Array.from(arguments[0])], "dropped.jpg", {type: "image/jpeg"});
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(file);
        const drag = (type) => document.body.dispatchEvent(
            new DragEvent(type, {dataTransfer, bubbles: true, cancelable: true}));
        drag("dragover");
        const invites = document.body.classList.contains("dropping");
        drag("drop");
        return invites;"""
    assert page.run(script, list(photo("blue")))
    page.until("return shown.isSearch")
    assert page.text("#parts") == "like dropped.jpg\n×"
    assert page.run("return document.querySelector('.hit img').alt").startswith("blue/")


def test_hostile_texts_are_shown_as_they_are(page):
    page.open()
    page.type("#query", f"red {HOSTILE}\n")
    assert "src=x" in page.text("#messages")
    assert page.run("return document.title").startswith("red <img")
    assert page.run("return document.querySelectorAll('main script, img[src=x]').length") == 0
    page.click(".hit .picture")
    page.run("document.getElementById('viewer').close()")
    hostile = page.run("return [...document.images].filter(i => i.alt.includes('<img')).length")
    assert hostile == 1
    options = page.run("return [...document.querySelectorAll('#folder option')].map(o => o.value)")
    assert "a <b>folder</b>" in options


def test_the_keyboard_is_enough(page):
    from selenium.webdriver.common.keys import Keys

    page.open("/?q=white")
    page.run("document.activeElement.blur()")
    page.type("body", "/")
    assert page.run("return document.activeElement.id") == "query"
    page.open()
    page.press("/")
    assert page.run("return [document.activeElement.id, document.activeElement.value]") == [
        "query",
        "",
    ]
    page.open("/?q=white")
    page.run("document.querySelector('#query').focus()")
    page.press(Keys.ENTER)
    page.run("document.querySelector('.picture').focus()")
    page.press(Keys.ENTER)
    first = page.text("#facts")
    page.press(Keys.ARROW_RIGHT)
    assert page.text("#facts") != first
    page.press(Keys.ESCAPE)
    assert not page.all("#viewer")
    page.until("return document.activeElement.dataset.place == '1'")


def test_filters_that_nothing_passes(page, dated):
    page.open("/?q=red&until=1900-01-01")
    assert page.text("main").split("\n") == [
        "No photo passes the filters.",
        "Reset filters",
    ]
    assert "(1 set)" in page.text("#active")
    page.click("#results button", "Reset filters")
    assert page.all(".hit")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off(page, width):
    long = "x" * 300
    for path in ("/", "/?q=red+blue", f"/?q={long}&not={long}", "/?like=0&like=1&tag=x"):
        page.open(path, width)
        assert not is_cut_off(page), path
    page.open("/?q=red+blue", width)
    for panel in ("#filters", "#help"):
        page.click(f"{panel} summary")
    assert not is_cut_off(page)
    page.click(".hit .picture")
    assert not is_cut_off(page)
    large = page.run("return document.getElementById('viewer').getBoundingClientRect().toJSON()")
    assert large["left"] >= 0
    assert large["right"] <= width
    assert large["bottom"] <= 900


def test_a_server_that_is_gone(page, service, monkeypatch):
    page.open("/?q=red")
    page.run("window.fetch = () => Promise.reject(new TypeError('no network'))")
    page.type("#query", " blue\n")
    assert page.text("main") == "The server does not answer. Is it still running?"


@pytest.fixture
def many(service, browser, monkeypatch):
    """The service, of an index of 100,000 photos, of which a few have files."""
    few, index = service.index, PhotoIndex.open(service.index.path)
    some, colours = few.photos(), few.embeddings(few.ids)["mean"]
    day = datetime(2026, 1, 1)
    items = [
        replace(
            some[number % len(some)],
            id=number,
            taken=(day - timedelta(hours=number)).isoformat(),
        )
        for number in range(MANY)
    ]
    means = colours[np.arange(MANY) % len(some)]
    for name in ("ids", "sample", "reference"):
        monkeypatch.delitem(index.__dict__, name, raising=False)
    monkeypatch.setitem(index.__dict__, "_photos", PhotoTable.of(items))
    monkeypatch.setitem(index.__dict__, "_arrays", {"mean": means})
    vectors = Exact(index.path / "many", (1, 3))
    vectors.add(np.arange(MANY), means[:, None])
    monkeypatch.setitem(index.__dict__, "vectors", vectors)
    monkeypatch.setattr(service, "searcher", Searcher(index, embedder=service.embedder))
    yield service
    browser.get("about:blank")  # It asks for no more thumbnails of this index.


def test_100_000_photos(page, many):
    shown = "[...document.querySelectorAll('.picture')].map(p => Number(p.dataset.place))"

    def scroll() -> set[int]:
        """Scrolls to the end, and gives the places that are on the page once others are there."""
        before = page.run(f"return Math.max(...{shown})")
        page.run("scrollTo(0, document.documentElement.scrollHeight)")
        page.until(f"return Math.max(...{shown}) > {before}")
        page.wait()
        return set(page.run(f"return {shown}"))

    page.open()
    assert "100,000 photos, the newest first" in page.text("#summary")
    assert page.text("#results h2").startswith("January 2026")
    seen = set(page.run(f"return {shown}"))
    assert len(seen) <= 120
    while len(seen) < 480:
        there = scroll()
        assert len(there) <= 400
        seen |= there
    assert len(there) < len(seen), "what is far away stays"
    assert seen == set(range(len(seen)))
    page.run("scrollTo(0, 0)")
    page.until("return document.querySelector('[data-place=\"0\"]')")
    page.open("/?q=red")
    assert len(page.run(f"return {shown}")) <= 160
    scroll()


def test_back_returns_to_the_place(page, many):
    shown = "[...document.querySelectorAll('.picture')].map(p => Number(p.dataset.place))"
    page.open()
    for _ in range(3):
        before = page.run("return shown.hits.length")
        page.run("scrollTo(0, document.documentElement.scrollHeight)")
        page.until(f"return shown.hits.length > {before}")
        page.wait()
    page.run("scrollTo(0, document.documentElement.scrollHeight - 3000)")
    page.until("return scrollY > 2000 && history.state?.place > 40")
    page.wait()
    page.run("savePlace()")
    count, place, top = page.run(
        "return [shown.hits.length, history.state.place, history.state.top]"
    )
    page.run(f"likePhoto(shown.hits[Math.max(...{shown}) - 3].id)")
    page.until("return location.search.startsWith('?like=')")
    page.wait()
    assert page.run("return scrollY") == 0
    go_back(page)
    page.until("return location.search === ''")
    page.wait()
    assert page.run("return shown.hits.length") >= count
    picture = f"document.querySelector(`[data-place='{place}']`)"
    assert abs(page.run(f"return {picture}.getBoundingClientRect().top") - top) < 2
    page.run("history.forward()")
    page.until("return location.search.startsWith('?like=')")
    page.wait()
    assert page.run("return scrollY") == 0


@pytest.fixture
def violations(page, browser):
    """What axe finds wrong with the page, in a light or a dark scheme."""
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    script = Path(axe.__file__).with_name("axe.min.js").read_text("utf-8")

    def find(scheme: str) -> list[str]:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page.run(script)
        found = browser.execute_async_script(
            "axe.run({resultTypes: ['violations']}).then(arguments[arguments.length - 1])"
        )
        return [f"{v['id']}: {n['html'][:200]}" for v in found["violations"] for n in v["nodes"]]

    return find


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (360, "dark")])
def test_nobody_is_shut_out(page, violations, dated, tmp_path, width, scheme):
    page.open("/", width)
    assert violations(scheme) == []
    page.open("/?q=red+wombat&like=0", width)
    for panel in ("#filters", "#help"):
        page.click(f"{panel} summary")
    assert violations(scheme) == []
    page.open("/?q=red+blue", width)
    page.click("#scores")
    page.run("document.querySelector('.picture').focus({focusVisible: true})")
    assert violations(scheme) == []
    page.click("#scores")
    page.click(".hit .picture")
    assert violations(scheme) == []
    page.open("/?q=red&until=1900-01-01", width)
    assert violations(scheme) == []
    (tmp_path / "broken.jpg").write_bytes(photo("red")[:200])
    page.type("#files", str(tmp_path / "broken.jpg"))
    assert page.all(".banner.problem, #parts li.broken")
    assert violations(scheme) == []
    page.open("/?q=blorp", width)
    assert page.all(".banner.unsure")
    assert violations(scheme) == []
    page.open("/?until=1900-01-01", width)
    page.run("clearTimeout(following); document.body.dataset.photos = 0; search()")
    page.wait()
    assert page.text("#results").startswith("The index has no photos yet.")
    assert violations(scheme) == []
