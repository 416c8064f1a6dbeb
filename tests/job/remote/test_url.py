import pytest

from cluster_serving.job.remote.url import ModelUrl, is_url

SHA256 = "ab" * 32


@pytest.mark.parametrize(
    ("text", "archive"),
    [
        ("s3://bucket/models/a", ""),
        ("s3a://bucket", ""),
        ("gs://bucket/model.zip/", ""),
        ("gs://bucket/model.zip", ".zip"),
        ("hdfs:///models/a", ""),
        ("hdfs://me@namenode:8020/models/a", ""),
        ("webhdfs://namenode:9870/models/a.tar", ".tar"),
        ("file:///srv/model.tar.gz", ".tar.gz"),
        ("https://host/model.TGZ", ".tgz"),
        ("https://user:password@[::1]:8443/model.zip?signature=1/2", ".zip"),
        (f"http://host/model.zip#sha256={SHA256.upper()}", ".zip"),
    ],
)
def test_addresses_of_folders_and_archives(text, archive):
    url = ModelUrl.parse(text)
    assert is_url(text)
    assert url.archive == archive
    assert url.sha256 == (SHA256 if "#" in text else "")


@pytest.mark.parametrize(
    ("text", "archive", "below"),
    [
        ("s3://bucket/models.zip", "s3://bucket/models.zip", "s3://bucket/models.zip!/a/1"),
        ("s3://bucket/models.zip!/shop/", "s3://bucket/models.zip", "s3://bucket/models.zip!/shop/a/1"),
        (
            "s3://bucket/models.zip!/x.zip!/shop",
            "s3://bucket/models.zip!/x.zip",
            "s3://bucket/models.zip!/x.zip!/shop/a/1",
        ),
        ("s3://bucket/models!/shop/", "s3://bucket/models!/shop/", "s3://bucket/models!/shop/a/1"),
        ("https://h/m.tgz?key=!/1", "https://h/m.tgz?key=!/1", "https://h/m.tgz!/a/1?key=!/1"),
        (
            f"https://h/m.tgz!/x?k=1#sha256={SHA256}",
            "https://h/m.tgz?k=1",
            f"https://h/m.tgz!/x/a/1?k=1#sha256={SHA256}",
        ),
    ],
)
def test_addresses_of_folders_in_archives(text, archive, below):
    url = ModelUrl.parse(text)
    assert (url.text, url.below("a/1")) == (archive, below)
    other = ModelUrl.parse(below)
    assert (url.path_to(other), other.path_to(url), url.path_to(url)) == ("a/1", "", "")
    assert other.key == url.key or not url.archive


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ftp://host/model.zip", "not one of s3, s3a, gs, hdfs, webhdfs, https, http, file"),
        ("https://host/model", "an archive is fetched"),
        ("https:///model.zip", "no host"),
        ("https://host:port/model.zip", "Port"),
        ("https://host/model.zip#sha1=00", "64 hexadecimal digits"),
        (f"s3://bucket/model#sha256={SHA256}", "a folder has no SHA-256"),
        ("s3://key:secret@bucket/model", "credentials from the environment"),
        ("hdfs://me:secret@namenode/model", "credentials from the environment"),
        ("s3:///model", "no bucket"),
        ("s3://bucket/model?versionId=1", "question mark"),
        ("file://model.zip", "three slashes"),
        ("hdfs://namenode/", "no path"),
        ("s3://bucket/model.zip!/a/../b", "no .."),
    ],
)
def test_an_address_that_no_model_can_be_fetched_from(text, problem):
    with pytest.raises(ValueError, match=problem) as error:
        ModelUrl.parse(text)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:secret@host/model.zip?token=secret&x=1", "https://***@host/model.zip?***"),
        ("https://me:secret@host/a.zip!/b/c?token=secret", "https://***@host/a.zip!/b/c?***"),
        ("https://me:12/secret@host/model.zip", "https://***@host/model.zip"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
    ],
)
def test_a_message_does_not_have_the_secrets_of_an_address(text, shown):
    url = ModelUrl.parse(text)
    assert str(url) == shown
    told = url.scrub(f"no answer of {text} url='{text}', secret")
    assert told.startswith(f"no answer of {shown} url='{shown}'")
    assert "token" not in told


def test_the_same_model_under_another_password_is_one_model():
    plain, other = (ModelUrl.parse(f"https://{user}host/model.zip") for user in ("", "me:secret@"))
    assert plain.key == other.key != ModelUrl.parse("https://host/model.zip?version=2").key
