"""By what a service and its embedded workers know each other."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509

from deuteron.server.dispatch.certificate import embedded_security


def test_the_certificate_of_the_embedded_cluster_does_not_go_by_the_clock() -> None:
    """A worker that is started again shakes hands by the time that it is then: the clock may have been days ahead when
    the service started, or the service be up for years. Dask's own certificates hold for a year from that moment."""
    security = embedded_security()
    text = security.tls_ca_file
    assert {security.tls_client_cert, security.tls_scheduler_cert, security.tls_worker_cert} == {text}
    assert embedded_security().tls_ca_file != text
    certificate = x509.load_pem_x509_certificate(text.encode())
    assert certificate.not_valid_before_utc <= datetime(1971, 1, 1, tzinfo=UTC)  # that of a machine without a clock
    assert certificate.not_valid_after_utc >= datetime(9999, 12, 31, tzinfo=UTC)
