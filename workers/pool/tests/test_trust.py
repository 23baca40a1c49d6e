"""What a worker holds the job service's certificate to. test/suites/jobservice has it meet a real service through a renewal."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from pool_worker.client import Trust
from pool_worker.errors import UnavailableError

ONE = """-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIUDhvCSiMKAk1YX37hEV4vWwTU1uUwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDb25lMCAXDTI2MTEyNDAzNDkyNVoYDzIxMjYxMDMxMDM0OTI1
WjAOMQwwCgYDVQQDDANvbmUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASyTw2a
GraoIDERO7yGrT2sk1353TEgj2sehdOEYNZMkr4bqQ0RFCj29b4MpN/5rKqhRxaf
JE95k018WaKu/peXo1MwUTAdBgNVHQ4EFgQU8NzFZr9rwgStkWzYvzQIhqoiJ7Qw
HwYDVR0jBBgwFoAU8NzFZr9rwgStkWzYvzQIhqoiJ7QwDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNIADBFAiBstZvpJxCtQtlsYdkc82S/vXRFIrM3FCixBlBS
y1bGrAIhAJWnqnTlLUDUd9YxYvWrcbODLBagHwlNNSGCeadc6pJl
-----END CERTIFICATE-----
"""

TWO = """-----BEGIN CERTIFICATE-----
MIIBdDCCARmgAwIBAgIUWaSg42QUAUK5iBBFbvD8acTEMyAwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDdHdvMCAXDTI2MTEyNDAzNDkyNVoYDzIxMjYxMDMxMDM0OTI1
WjAOMQwwCgYDVQQDDAN0d28wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT/pxNd
9iB+tvmmPxkVUmg1cyWvCMvUFtrf3dRxR8ncF3IxG7HHFZs/REwnFPLUIlbR+u2R
Jc6VHKL1f5NIWbGio1MwUTAdBgNVHQ4EFgQUipZAyIRca+KqLv6sXbgr+wfoq0Yw
HwYDVR0jBBgwFoAUipZAyIRca+KqLv6sXbgr+wfoq0YwDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNJADBGAiEAtvwfOZijBAqVMIg31OD6hJOOSNQNneimkQb1
st6HIvgCIQCV/5xkIRkfT2k4JUlNm0rf8aX8+w5dfD5tq9GVs0xTCw==
-----END CERTIFICATE-----
"""


def names(context: ssl.SSLContext) -> set[str]:
    return {value for ca in context.get_ca_certs() for ((_, value),) in ca["subject"]}


def test_a_file_of_authorities_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(ONE)
    trust = Trust(file)
    first = trust.context()
    assert "one" in names(first)
    assert first.verify_mode == ssl.CERT_REQUIRED
    assert first.minimum_version == ssl.TLSVersion.TLSv1_2
    assert trust.context() is first
    file.write_text(TWO + ONE)
    assert names(trust.context()) >= {"one", "two"}


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_file_without_authorities_is_an_outage(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UnavailableError, match="JOB_SERVICE_CA_FILE .* cannot be read"):
        Trust(file).context()


def test_without_a_file_the_authorities_of_the_system_count() -> None:
    assert Trust(None).context().verify_mode == ssl.CERT_REQUIRED
