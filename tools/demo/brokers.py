"""A Kafka broker on loopback, from the settings in infra/kafka: formatted, started, awaited. The
Rust tests start their brokers in libs/testkit/src/brokers.rs.
"""

import random
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from processes import Child, DemoError

SETTINGS = Path(__file__).absolute().parents[2] / "infra" / "kafka"
TEMPLATES = ("broker.properties", "one-broker.properties")
READY_TEXT = "Kafka Server started"
FORMAT_SECONDS = 60.0
START_SECONDS = 120.0
LOOK_SECONDS = 0.05
PORTS = range(12_000, 32_000)
"""Port range below the system's range for outgoing connections."""
PORT_TRIES_MAX = 200
JAVA = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

Start = Callable[[str, list[str]], Child]
"""A function that starts a program by name and command line, and ensures that it is stopped."""


def start_broker(start: Start, programs: Path, folder: Path) -> tuple[Child, str]:
    """Start a broker with its data in the folder; returns it and its address, once it serves.

    The jars are next to the folder of programs, where set-up puts them.
    """
    jars = programs.parent / "kafka"
    if not any(jars.glob("kafka_*.jar")):
        raise DemoError(f"there are no Kafka jars in {jars}; run: make setup")
    port, controller_port = free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(server_settings(port, controller_port, folder / "kafka-data"))
    logging = SETTINGS / "log4j2.properties"
    java = [*JAVA, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
    # The format of Kafka's random-uuid: 22 characters of base64, the last with two bits only.
    cluster = uuid.uuid4().hex[:21] + "A"
    formatter = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    start("format-broker", formatter).await_end(FORMAT_SECONDS)
    broker = start("broker", [*java, "kafka.Kafka", str(settings)])
    await_ready(broker, START_SECONDS)
    return broker, f"127.0.0.1:{port}"


def server_settings(port: int, controller_port: int, data: Path) -> str:
    """Fill in the settings of one broker."""
    text = "\n".join((SETTINGS / name).read_text("utf-8") for name in TEMPLATES)
    places = {"@PORT@": port, "@CONTROLLER_PORT@": controller_port, "@DATA@": data}
    for word, value in places.items():
        text = text.replace(word, str(value))
    return text


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens now."""
    found: list[int] = []
    for port in random.sample(PORTS, PORT_TRIES_MAX):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise DemoError(f"no {count} free ports from {PORTS.start} to {PORTS.stop}")


def await_ready(broker: Child, seconds: float) -> None:
    """Wait until the broker's log reports that it serves."""
    deadline = time.monotonic() + seconds
    while READY_TEXT not in broker.log.read_text("utf-8", "replace"):
        broker.check()
        if time.monotonic() > deadline:
            raise DemoError(f"the broker was not ready within {seconds:.0f} s")
        time.sleep(LOOK_SECONDS)
