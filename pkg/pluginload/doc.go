// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pluginload opens vendors' plugins, which are Go programs built with -buildmode=plugin, or
// logs the reason in one line.
//
// Opening such a file is dangerous. A truncated file ends the process by SIGBUS, a shared library
// that is not Go's ends it in the runtime, a plugin that hangs or calls os.Exit in its
// initialisation hangs or ends the process, and a second attempt at a file that panicked in init
// does not return. So each file passes three stages, and must pass one to enter the next:
//
//  1. This process reads it: a complete ELF file, built by the same Go, as a plugin, with the entry
//     point.
//  2. A child process tries it: this program, started again, opens the file and creates the plugin,
//     within a deadline. A failure affects only the child.
//  3. This process opens it, by the same code, with the same deadline, and recovers panics.
//
// A program that uses this package calls [MaybeChild] before anything else.
//
// Install a plugin by renaming it into its directory. Copying over a file that a running program
// has opened damages that program; no check can prevent that.
package pluginload
