"""Messages for S3's errors: which action failed on which object, what S3 answered, and what to do about it."""

from __future__ import annotations

from primitives.errors import EnvironmentFault, SeepError, UserError
from vmpool.aws.errors import code_of, message_of, unforeseen

_LOG_IN = "log in again or renew the credentials (AWS_* variables, storage.s3.profile, or the role of this machine)"
_ALLOW = (
    "the credentials do not allow it: they need s3:GetObject, s3:PutObject, s3:DeleteObject and "
    "s3:AbortMultipartUpload on the objects, s3:ListBucket on the bucket, and the use of the key if kms is set"
)
_LATER = "the service is busy; try again"
_UNREACHABLE = "the service cannot be reached; look at the network, storage.s3.region and storage.s3.endpoint_url"

#: Error code -> message, for wrong settings.
_MISTAKEN = {
    "NoSuchBucket": "make the bucket, or set storage.location to one that is there",
    "InvalidBucketName": "set storage.location to a bucket that is there",
    "PermanentRedirect": "set storage.s3.region to the region of the bucket",
    "AuthorizationHeaderMalformed": "set storage.s3.region to the region of the bucket",
    "IllegalLocationConstraintException": "set storage.s3.region to the region of the bucket",
    "KMS.NotFoundException": "set storage.s3.kms_key to a key of the bucket's region",
    "NoRegionError": "set storage.s3.region, or AWS_REGION",
    "ProfileNotFound": "set storage.s3.profile to one that ~/.aws/config has",
    "ParamValidationError": "look at the setting that it names",
}

_ADVICE = (
    dict.fromkeys(
        [
            "ExpiredToken",
            "InvalidAccessKeyId",
            "InvalidToken",
            "RequestExpired",
            "SignatureDoesNotMatch",
            "PartialCredentialsError",
            "CredentialRetrievalError",
            "SSOTokenLoadError",
            "TokenRetrievalError",
            "UnauthorizedSSOTokenError",
        ],
        _LOG_IN,
    )
    | dict.fromkeys(["AccessDenied", "AllAccessDisabled", "403"], _ALLOW)
    | dict.fromkeys(
        ["InternalError", "OperationAborted", "ServiceUnavailable", "SlowDown", "Throttling", "503"], _LATER
    )
    | {
        "NoCredentialsError": "no credentials were found: set storage.s3.profile, or AWS_* variables, or run on a "
        "machine with a role",
        "RequestTimeTooSkewed": "the clock of this machine is wrong; set it",
    }
)


def in_words(reason: Exception, done: str, about: str) -> SeepError:
    """Returns the error to raise for one of the library's.

    >>> print(in_words(TimeoutError("no answer"), "read", "s3://bucket/orders/1"))
    s3://bucket/orders/1 cannot be read (TimeoutError: no answer); the service cannot be reached; look at the network, \
storage.s3.region and storage.s3.endpoint_url
    """
    code = code_of(reason)
    mistake = _MISTAKEN.get(code)
    advice = mistake or _ADVICE.get(code) or unforeseen(reason, _UNREACHABLE)
    said = f"{about} cannot be {done} ({code}: {message_of(reason)}); {advice}"
    return UserError(said) if mistake else EnvironmentFault(said)
