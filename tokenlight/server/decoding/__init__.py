# SPDX-License-Identifier: Apache-2.0
"""What the protocols read alike: tools, shapes, plain fields, sealed reasoning, notes."""
