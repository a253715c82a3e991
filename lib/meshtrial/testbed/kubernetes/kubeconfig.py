"""From a kubeconfig, or the pod that this process runs in, to what the client connects with.

Everything that a kubeconfig can lack is said before the first request, in one line. The client itself passes on what
Python raises, only logs a plugin that gives no credentials, and takes certificates that it cannot read for a server
that does not answer.
"""

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes import client as k8s
from kubernetes import config as _untyped_config
from kubernetes.config import kube_config as _untyped_kube_config

from meshtrial.errors import MissingToolError, UsageError
from meshtrial.typed import SHAPE_ERRORS, read_yaml, shortened

config: Any = _untyped_config
kube_config: Any = _untyped_kube_config
_LOOPBACK = ("localhost", "127.0.0.0/8", "::1/128")


def configuration_of(kubeconfig: str, context: str) -> tuple[Any, str]:
    """The client's configuration and the context's name, which is empty inside a cluster.

    Without a path it is KUBECONFIG or the usual file, without a context the current one.
    """
    configuration = k8s.Configuration()
    files = _files(kubeconfig)
    if not files and not context:
        return _in_cluster(configuration)
    with _one_line(", ".join(map(str, files)) or "(default)"):
        current = _load(configuration, files, context)
    # A proxy that the kubeconfig names (proxy-url) is meant, for loopback may be another machine's behind it. One of
    # the environment is kept away from loopback, as kubectl does.
    if configuration.proxy == k8s.Configuration(host=configuration.host).proxy:
        configuration.no_proxy = ",".join(filter(None, (configuration.no_proxy, *_LOOPBACK)))
    return configuration, current


def _files(kubeconfig: str) -> list[Path]:
    """The files that there are: the one that was given, or of a list in KUBECONFIG those that exist."""
    if kubeconfig:
        path = Path(kubeconfig).expanduser()
        if not path.is_file():
            raise UsageError(f"kubeconfig = {kubeconfig!r}: there is no such file")
        return [path]
    usual = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for name in usual.split(os.pathsep) if (path := Path(name).expanduser()).is_file()]


def _load(configuration: Any, files: list[Path], context: str) -> str:
    merged = kube_config.KubeConfigMerger("")
    for path in files:
        read_yaml(path, f"kubeconfig {path} cannot be used", "clusters, users and contexts")
        merged.load_config(str(path))
    read = merged.config
    if read is None:
        raise config.ConfigException("there is no such file")
    there = {kind: [item["name"] for item in read[f"{kind}s"].value] for kind in ("context", "cluster", "user")}
    has = ", ".join(there["context"]) or "none"
    if context and context not in there["context"]:
        raise UsageError(f"context = {context!r} is not in the kubeconfig; it has {has}")
    name = context or read.value.get("current-context")
    if name not in there["context"]:
        current = f"its current context, {name}, is not in it" if name else "it has no current context"
        raise config.ConfigException(f"{current}; give context= one of these: {has}")
    parts = read["contexts"].get_with_name(name)["context"]
    for kind in ("cluster", "user"):
        if (part := parts.safe_get(kind)) and part not in there[kind]:
            raise config.ConfigException(f"context {name} names the {kind} {part}, which is not in it")
    with _heard() as said:
        kube_config.KubeConfigLoader(read, name, config_base_path=None).load_and_set(configuration)
    if said:
        raise config.ConfigException(f"its plugin gives no credentials ({said[-1]})")
    if not configuration.host:
        raise config.ConfigException(f"the cluster of context {name} has no server")
    _read_certificates(configuration)
    return str(name)


@contextmanager
def _one_line(files: str) -> Iterator[None]:
    try:
        yield
    except (config.ConfigException, OSError) as error:
        why = " ".join(str(error).split())[:300]
    except SHAPE_ERRORS as error:
        why = f"it has not the form of a kubeconfig ({shortened(error, 120)})"
    else:
        return
    raise UsageError(f"kubeconfig {files} cannot be used: {why}") from None


class _Listener(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        if record.pathname == kube_config.__file__:
            self.said.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What the client logs of credentials that it could not get: it goes on without them."""
    listener = _Listener([])
    logging.getLogger().addHandler(listener)
    try:
        yield listener.said
    finally:
        logging.getLogger().removeHandler(listener)


def _read_certificates(configuration: Any) -> None:
    """Read them as the first request would."""
    try:
        if configuration.ssl_ca_cert:
            what = "certificate authority"
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(configuration.ssl_ca_cert)
        if configuration.cert_file:
            what = "client certificate"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # Without a password OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    except ssl.SSLError as error:
        raise config.ConfigException(f"its {what} cannot be read ({error.reason or error})") from None


def _in_cluster(configuration: Any) -> tuple[Any, str]:
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        raise MissingToolError(
            "no cluster is known: there is no kubeconfig and this is not a pod; set kubeconfig=PATH or $KUBECONFIG"
        ) from None
    return configuration, ""
