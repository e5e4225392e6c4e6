"""The files of deploy/ are for this project as it is, and the proxy lets the right ones in."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import setuptools
import yaml
from small_index import small_index

from keras_xmr.commands import _cli as cli
from keras_xmr.commands import load_command
from keras_xmr.search.server.process import DRAIN

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
SUPPORT = ROOT / "tests" / "support"
NAME = "photos.example"


def arguments_of(words: list[str]):
    """The arguments of a command line, without the program; wrong ones raise."""
    return cli._parse(words[0], load_command(words[0]), words[1:])


def test_the_image_is_built_from_all_that_is_in_the_wheel():
    text = (DEPLOY / "Dockerfile").read_text()
    stage = text.partition("\nFROM ")[2].partition("\nFROM ")[0] or text.split("\nFROM ")[0]
    copied = {
        word for line in re.findall(r"^COPY (?!--)(.+) \S+$", stage, re.M) for word in line.split()
    }
    packages = {p.partition(".")[0] for p in setuptools.find_packages(str(ROOT))}
    packages &= {"keras_xmr", "data_pipelines"}
    assert copied == {
        *("pyproject.toml", "setup.py", "README.md", "LICENSE", "configs", "docs", *packages),
        "deploy/search.txt",
    }
    for name in copied:
        assert (ROOT / name).exists(), name
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == copied


def test_compose_starts_what_there_is(monkeypatch):
    monkeypatch.setenv("NAME", NAME)
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services.keys() == {"folders", "index", "server", "proxy"}
    build = services["folders"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()

    def filled(word: str) -> str:
        """The word without the variables that have a default, as Compose fills it."""
        word = re.sub(r"\$\{NAME:\?[^}]*\}", NAME, word)
        word = re.sub(r"\$\{\w+:\+[^}]*\}", "", word)
        while (shorter := re.sub(r"\$\{\w+:-([^${}]*)\}", r"\1", word)) != word:
            word = shorter
        return word

    index, server = (
        arguments_of([filled(word) for word in services[name]["command"]])
        for name in ("index", "server")
    )
    assert index.run == Path("saved_models/csv_pretrained")
    assert server.index == index.index
    assert server.watch
    assert server.wait
    assert services["index"]["mem_limit"] == services["server"]["mem_limit"] == "${MEMORY:-4g}"
    assert (server.host, server.allow_host) == ("0.0.0.0", [NAME])
    assert f":{index.images}:ro" in services["index"]["volumes"][0]
    # The proxy alone can be reached from elsewhere.
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    proxy = (DEPLOY / "nginx.conf").read_text()
    assert f"set $server http://server:{server.port};" in proxy
    images = [service["image"] for service in services.values() if service["image"] != "keras-xmr"]
    images += re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert all(re.search(r":\d+\.\d+\.\d+", image) for image in images), "images are pinned"
    for volume in services["proxy"]["volumes"]:
        name = volume.partition(":")[0]
        assert (DEPLOY / name).exists() or "secrets" in name


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files away")
def test_folders_that_docker_has_made_are_given_to_the_user(tmp_path):
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    shell, option, script = services["folders"]["entrypoint"]
    (tmp_path / "data").mkdir()
    (tmp_path / "saved_models").mkdir()
    os.chown(tmp_path / "saved_models", 1234, 1234)
    environment = {**os.environ, "OWNER": "1000:1001"}
    command = [shell, option, script.replace("$$", "$")]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    owners = [
        ((tmp_path / n).stat().st_uid, (tmp_path / n).stat().st_gid)
        for n in ("data", "saved_models")
    ]
    assert owners == [(1000, 1001), (1234, 1234)]


def test_compose_reads_its_file():
    docker = shutil.which("docker")
    compose = [docker or "docker", "compose"]
    if (
        not docker
        or subprocess.run([*compose, "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("docker compose is not installed")
    environment = {**os.environ, "NAME": NAME, "PHOTOS": "/photos"}
    command = [*compose, "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_renewed_certificate_is_given_to_nginx(tmp_path):
    for folder in ("renewed", "secrets"):
        (tmp_path / folder).mkdir()
        for name in ("fullchain.pem", "privkey.pem"):
            (tmp_path / folder / name).write_text(f"{folder} {name}")
            (tmp_path / folder / name).chmod(0o400)
    environment = {
        **os.environ,
        "RENEWED_LINEAGE": str(tmp_path / "renewed"),
        "SECRETS": str(tmp_path / "secrets"),
        "RELOAD": f"touch {tmp_path}/reloaded",
    }
    subprocess.run([DEPLOY / "renew.sh"], env=environment, check=True)
    assert (tmp_path / "reloaded").exists()
    files = sorted((tmp_path / "secrets").iterdir())
    assert [path.name for path in files] == ["fullchain.pem", "privkey.pem"]
    assert [path.read_text() for path in files] == ["renewed fullchain.pem", "renewed privkey.pem"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o400}


def test_the_unit_of_systemd_starts_and_ends_the_server():
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(DEPLOY / "keras-xmr.service")
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "keras-xmr"
    assert arguments_of(words).host == "127.0.0.1", "a proxy is on the same machine"
    assert arguments_of(words).watch
    assert int(unit["Service"]["TimeoutStopSec"]) > DRAIN
    text = (DEPLOY / "keras-xmr.service").read_text()
    steps = "".join(line for line in text.splitlines(True) if line.startswith("#"))
    for name in (Path(program).parents[1], unit["Service"]["WorkingDirectory"], "keras-xmr"):
        assert str(name) in steps
    if analyze := shutil.which("systemd-analyze"):
        command = [analyze, "verify", "--man=no", str(DEPLOY / "keras-xmr.service")]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        ours = [line for line in said.splitlines() if "keras-xmr.service:" in line]
        # The program is not installed here.
        assert [line for line in ours if "not executable" not in line] == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def ended(command: list[str], how: signal.Signals, **options):
    """A process that a signal ends after the test."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.send_signal(how)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """A client of nginx with our config before a server of a small index, and its address."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    openssl = shutil.which("openssl")
    if not (nginx and openssl):
        pytest.skip("nginx or openssl is not installed")
    folder = tmp_path_factory.mktemp("proxy")
    key, certificate = folder / "privkey.pem", folder / "fullchain.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={NAME}"),
            *("-addext", f"subjectAltName=DNS:{NAME}", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    password = subprocess.run(
        [openssl, "passwd", "-apr1", "long password"], check=True, capture_output=True, text=True
    ).stdout
    (folder / "accounts").write_text(f"ann:{password}")
    (folder / "tokens").write_text('"Bearer 0123456789abcdef" off;\n')
    server = [sys.executable, str(SUPPORT / "stub_server.py")]
    server += [str(small_index(folder / "photos").path), "0", NAME]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{SUPPORT}"}
    with ended(server, signal.SIGKILL, stdout=subprocess.PIPE, env=environment) as process:
        address = process.stdout.readline().strip().removesuffix("/")
        plain, port = free_port(), free_port()
        config = (DEPLOY / "nginx.conf").read_text()
        for old, new in (
            ("http://server:8000", address),
            ("/etc/nginx/secrets", str(folder)),
            ("listen 80;", f"listen 127.0.0.1:{plain};"),
            ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ):
            assert old in config
            config = config.replace(old, new)
        # What a process of any user may write, and its workers read.
        places = "".join(
            f"    {name}_temp_path {folder}/{name};\n"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = config.replace("http {\n", f"http {{\n    access_log off;\n{places}", 1)
        user = "user root;\n" if os.getuid() == 0 else ""
        config = config.replace("user www-data;\n", user, 1)
        (folder / "nginx.conf").write_text(f"daemon off;\npid {folder}/nginx.pid;\n{config}")
        command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
        checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        with ended(command, signal.SIGTERM, stderr=subprocess.DEVNULL):
            trust = ssl.create_default_context(cafile=str(certificate))
            # As if DNS had the name.
            with httpx.Client(
                base_url=f"https://127.0.0.1:{port}",
                verify=trust,
                headers={"Host": NAME},
            ) as client:
                extensions = {"extensions": {"sni_hostname": NAME}}
                for _ in range(100):
                    try:
                        client.get("/", **extensions)
                        break
                    except httpx.ConnectError:
                        time.sleep(0.05)

                def ask(method: str, path: str, **options):
                    return client.request(method, path, **options, **extensions)

                ask.plain = f"http://127.0.0.1:{plain}/"
                yield ask


ANN = ("ann", "long password")
TOKEN = {"Authorization": "Bearer 0123456789abcdef"}


@pytest.mark.slow
def test_the_proxy_lets_accounts_and_tokens_in_and_nobody_else(proxy):
    for options in (
        {},
        {"auth": ("ann", "wrong")},
        {"headers": {"Authorization": "Bearer 0123456789abcdeg"}},
        {"headers": {"Authorization": "Bearer"}},
    ):
        answer = proxy("GET", "/", **options)
        assert (answer.status_code, "hits" in answer.text) == (401, False)
        assert answer.headers["www-authenticate"] == 'Basic realm="Photos"'
    assert "<form" in proxy("GET", "/", auth=ANN).text
    found = proxy("GET", "/search?texts=red&count=3", headers=TOKEN)
    assert (found.status_code, len(found.json()["hits"])) == (200, 3)


@pytest.mark.slow
def test_requests_of_the_page_pass_the_proxy_and_those_of_others_do_not(proxy):
    query = {"texts": ["a red photo"], "count": 2}
    own = proxy("POST", "/search", json=query, auth=ANN, headers={"Origin": f"https://{NAME}"})
    assert (own.status_code, len(own.json()["hits"])) == (200, 2)
    other = proxy("POST", "/search", json=query, auth=ANN, headers={"Origin": "https://evil.test"})
    assert (other.status_code, other.json()) == (
        403,
        {"error": "requests from pages of another site are not allowed"},
    )
    assert proxy("GET", "/", auth=ANN, headers={"Host": "evil.test"}).status_code == 421
    assert proxy("GET", "/metrics", auth=ANN).status_code == 404
    moved = httpx.get(proxy.plain, headers={"Host": NAME})
    assert (moved.status_code, moved.headers["location"]) == (301, f"https://{NAME}/")
