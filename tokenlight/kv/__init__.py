# SPDX-License-Identifier: Apache-2.0
"""Where KV lives."""

from tokenlight.kv.device_pool import DevicePool, kv_bytes_per_token

__all__ = ["DevicePool", "kv_bytes_per_token"]
