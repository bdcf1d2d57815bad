#!/usr/bin/env node
// npm links a command when it installs, which is before the build: this file is there then, the built one is not.
import '../dist/main.js';
