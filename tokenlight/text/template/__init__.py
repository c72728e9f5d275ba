# SPDX-License-Identifier: Apache-2.0
"""Chat templates: Jinja2 in a sandbox with bounds."""

from tokenlight.text.template.chat_template import ChatTemplate

__all__ = ["ChatTemplate"]
