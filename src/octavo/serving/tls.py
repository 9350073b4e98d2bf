"""HTTPS: a context from PEM files."""

from __future__ import annotations

import ssl

from octavo.errors import InvalidParameterError
from octavo.serving.options import TlsOptions


def tls_context(options: TlsOptions) -> ssl.SSLContext:
    """TLS 1.2 or newer. Raises InvalidParameterError naming the file that is not usable."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    files = f"{options.certificate_file}, {options.key_file}"
    try:
        # The empty password: an encrypted key must not make a service wait at a prompt.
        context.load_cert_chain(options.certificate_file, options.key_file, password="")
    except (OSError, ssl.SSLError) as error:
        raise InvalidParameterError("ssl_certfile", f"cannot use {files}: {error}") from None
    if options.client_ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(options.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            message = f"cannot use {options.client_ca_file}: {error}"
            raise InvalidParameterError("ssl_ca_certs", message) from None
    return context
