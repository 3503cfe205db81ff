"""Names of certificates, against what Java 17 wrote for the same bytes (`new X500Principal(der).getName()`)."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from sidecar.security.distinguished_names import CertificateError, distinguished_name, subject_of
from tests.certificates import Authority

BY_JAVA = [
    (
        "3031310b300906035504061302444531133011060355040a0c0a41636d652c20496e632e310d300b06035504030c046e6f6465",
        "CN=node,O=Acme\\, Inc.,C=DE",
    ),
    (
        "3021311f301d06035504030c1642c3bc636865723d3c57c3b6727465723e3b225c2b23",
        'CN=Bücher\\=\\<Wörter\\>\\;\\"\\\\\\+\\#',
    ),
    (
        "30293110300e06035504030c072020612062200d310a3008060355040b0c012031093007060355040a0c00",
        "O=,OU=\\ ,CN=\\ \\ a b\\ \\\r",
    ),
    (
        "302e310c300a06035504030c03236123311e3010060a0992268993f22c6401010c027531300a06035504030c0374776f",
        "UID=u1+CN=two,CN=\\#a\\#",
    ),
    (
        (
            "30523114301206092a864886f70d01090116056140622e63310c300a0603550405130331323331173015060a0992268993f22c64"
            "011916076578616d706c6531133011060a0992268993f22c6401191603636f6d"
        ),
        "DC=com,DC=example,2.5.4.5=#1303313233,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    ("3020310d300b06035504031404636166e9310f300d060355040a1e060042004d0050", "O=\\00B\\00M\\00P,CN=caf�"),
    (
        "3034310e300c0603550403120531323334353110300e060355040a1a0776697369626c653110300e060355040b1b0767656e6572616c",
        "OU=general,O=#1a0776697369626c65,CN=#12053132333435",
    ),
    ("300f310d300b06035504031c0400000055", "CN=#1c0400000055"),
    (
        "3030310a300806035504080c0178310a300806035504090c0179310a3008060355040c0c017a310a300806035504070c016c",
        "L=l,2.5.4.12=#0c017a,STREET=y,ST=x",
    ),
    ("3024310c300a06035504030c0361006231143012060355040a0c0be697a5e69cac09e8aa9e0a", "O=日本\t語\n,CN=a\\00b"),
    ("3000", ""),
    (
        "302331133011060a2b06010401868d1f022f0c036f776e310c300a06038837030c036f776e",
        "2.999.3=#0c036f776e,1.3.6.1.4.1.99999.2.47=#0c036f776e",
    ),
]


@pytest.mark.parametrize(("der", "name"), BY_JAVA, ids=[name for _, name in BY_JAVA])
def test_a_name_is_written_as_java_writes_it(der: str, name: str) -> None:
    assert distinguished_name(bytes.fromhex(der)) == name


def test_a_certificates_subject_is_found(tmp_path: Path) -> None:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
            x509.NameAttribute(NameOID.COMMON_NAME, "billing"),
        ]
    )
    path, _ = Authority(tmp_path, "somebody else").issue(subject)
    assert subject_of(ssl.PEM_cert_to_DER_cert(path.read_text())) == "CN=billing,O=Acme\\, Inc.,C=DE"


def test_a_subject_is_too_long_to_be_matched_with_the_rules_of_an_operator(tmp_path: Path) -> None:
    """`RULE:^.*CN=(.*?),.*x$/$1/` takes 2 s for 8,000 characters, and eight times that for twice as many."""
    units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "u" * 60) for _ in range(40)]
    path, _ = Authority(tmp_path).issue(x509.Name(units))
    with pytest.raises(CertificateError, match="2048 at most"):
        subject_of(ssl.PEM_cert_to_DER_cert(path.read_text()))
    path, _ = Authority(tmp_path).issue(x509.Name(units[:30]))
    assert subject_of(ssl.PEM_cert_to_DER_cert(path.read_text())).count("OU=") == 30


@given(st.data())
def test_no_damage_raises_anything_else(data: st.DataObject) -> None:
    der = bytearray.fromhex(data.draw(st.sampled_from([der for der, _ in BY_JAVA])))
    for _ in range(data.draw(st.integers(0, 3))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    der = bytes(der[: data.draw(st.integers(0, len(der)))])
    for read in (distinguished_name, subject_of):
        with contextlib.suppress(CertificateError):
            read(der)


@pytest.mark.parametrize(
    "der", ["", "30", "3080", "308500000000ff", "3005", "0400", "30043102", "300831063004060280010c"]
)
def test_what_is_cut_off_is_no_name(der: str) -> None:
    with pytest.raises(CertificateError):
        distinguished_name(bytes.fromhex(der))
