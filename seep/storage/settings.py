"""Settings of durable storage: where checkpoints are stored, how many are kept, and how they are written."""

from __future__ import annotations

from enum import StrEnum

from pydantic import ByteSize, Field, model_validator

from formats.avro_file import Compression
from formats.settings import Seconds, Section


class Encryption(StrEnum):
    """The key with which S3 encrypts objects."""

    BUCKET = "bucket"  #: the default of the bucket
    S3 = "s3"  #: keys that S3 manages (AES256)
    KMS = "kms"  #: a key of the Key Management Service


class S3Settings(Section):
    """Settings for S3, or for a server with the same protocol."""

    region: str | None = Field(None, description="The region of the bucket; as AWS_REGION if not given.")
    profile: str | None = Field(None, description="Profile in ~/.aws with the credentials; the default ones if none.")
    endpoint_url: str | None = Field(
        None, pattern=r"^https?://", description="Another server than Amazon's, such as http://minio:9000."
    )
    conditional: bool = Field(
        True,
        description="Whether that server knows If-None-Match, which keeps two runs of a query safely apart.",
    )
    encryption: Encryption = Field(Encryption.BUCKET, description="bucket (as it is set up), s3 (AES256) or kms.")
    kms_key: str | None = Field(None, description="The key for kms; the account's own for S3 if not given.")
    part_size: ByteSize = Field(
        ByteSize(16 * 2**20),
        ge=5 * 2**20,
        le=5 * 2**30,
        description="Values larger than this are uploaded in parts of this size; 10,000 parts at most.",
    )
    uploads: int = Field(4, ge=1, le=64, description="Parts of one value that are uploaded at the same time.")

    @model_validator(mode="after")
    def _key_is_for_kms(self) -> S3Settings:
        if self.kms_key is not None and self.encryption is not Encryption.KMS:
            raise ValueError(f"kms_key is given, but encryption is {self.encryption}; set it to kms")
        return self


class StorageSettings(Section):
    """Settings of the storage of checkpoints, which outlive the query's nodes and its driver."""

    location: str | None = Field(
        None,
        description="A directory, s3://bucket/prefix, gs://bucket/prefix or hdfs://host:port/dir; nowhere if none.",
    )
    every: int = Field(10, ge=1, description="Every so many rounds of checkpoints, one goes to storage.")
    keep: int = Field(3, ge=1, description="Complete checkpoints that stay; savepoints stay besides.")
    codec: Compression = Field(Compression.NONE, description="Compression of blobs: none, zstd, deflate.")
    chain: int = Field(
        8, ge=0, description="Most deltas that build on a full checkpoint before the next full one; 0: all are full."
    )
    compact: ByteSize = Field(
        ByteSize(4 << 30),
        description="Operators with at most so much state have long chains merged in storage, by the driver; others "
        "write all their state again.",
    )
    timeout: Seconds = Field(
        600.0, description="Time after which a checkpoint that is not complete is abandoned; the next one is tried."
    )
    cache: ByteSize = Field(ByteSize(0), description="Memory of each process for blobs it has read, such as 256MiB.")
    s3: S3Settings = Field(S3Settings(), description="How S3 is used, if location is there.")
