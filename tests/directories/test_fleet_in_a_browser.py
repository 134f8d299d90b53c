"""The page of ``kstate fleet --html`` in a real browser: what unfolds, what is asked of a network, how it fits a screen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.unit.fleet.made_up import host_line, store, summary, text

from .listings import three_hosts
from .support import kstate

pytestmark = pytest.mark.rotating(6)

HOSTILE = '<script>alert(1)</script>"onmouseover=alert(2)'


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Chromium without a screen, which tells what it asks for and what its console says."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_page_load_timeout(600)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hosts of a real directory, a task on none of them; and a host whose names are hostile."""
    folder = tmp_path_factory.mktemp("fleet")
    hosts = three_hosts(folder).values()
    stores = [store("0_0", HOSTILE)]
    (folder / "evil.json").write_text(host_line(HOSTILE) + text([*stores, summary(stores, HOSTILE)]))
    kstate("fleet", *hosts, folder / "evil.json", "--html", folder / "fleet.html", status=3)
    return folder / "fleet.html"


def requests(browser: webdriver.Chrome) -> list[str]:
    """What the browser asked for since the last call."""
    entries = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]  # type: ignore[no-untyped-call]
    return [entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]


def test_it_asks_for_nothing_and_runs_nothing(browser: webdriver.Chrome, page: Path) -> None:
    requests(browser)
    browser.get(page.as_uri())
    assert requests(browser) == [page.as_uri()]
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert HOSTILE in browser.find_element(By.TAG_NAME, "body").text
    assert browser.find_elements(By.TAG_NAME, "script") == []


def test_findings_unfold_with_the_text_of_explain(browser: webdriver.Chrome, page: Path) -> None:
    browser.get(page.as_uri())
    folded = browser.find_elements(By.TAG_NAME, "details")
    assert folded
    for entry in folded:
        code = entry.get_attribute("id")
        (first, *_) = kstate("explain", f"fleet:{code}", "-o", "json").rows
        inside = entry.find_element(By.TAG_NAME, "div")
        assert not inside.is_displayed()
        entry.find_element(By.TAG_NAME, "summary").click()
        assert inside.is_displayed() and first["message"] in inside.text
        entry.find_element(By.TAG_NAME, "summary").click()
        assert not inside.is_displayed()


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_it_fits_the_screen_and_can_be_read(browser: webdriver.Chrome, page: Path, scheme: str, width: int) -> None:
    emulated = {"media": "screen", "features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    sizes = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    dark = luminance(browser, "body", "background-color") < 0.2
    assert dark is (scheme == "dark")
    for choice, back in (("body", "body"), (".t.ok", ".t.ok"), (".t.near", ".t.near"), (".t.far", ".t.far"),
                         (".t.worse", ".t.worse"), (".t.what", ".t.what"), (".t.none", "body"), (".dim", "body")):  # fmt: skip
        high, low = sorted((luminance(browser, choice, "color"), luminance(browser, back, "background-color")))[::-1]
        assert (high + 0.05) / (low + 0.05) >= 3, (choice, scheme)


def luminance(browser: webdriver.Chrome, choice: str, property_: str) -> float:
    """Relative luminance of a colour as WCAG 2 has it, 0 black to 1 white."""
    output = browser.find_element(By.CSS_SELECTOR, choice).value_of_css_property(property_)
    parts = [int(part.strip()) / 255 for part in output.partition("(")[2].rstrip(")").split(",")[:3]]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
