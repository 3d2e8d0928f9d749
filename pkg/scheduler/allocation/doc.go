// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocation finds devices for a pod on a node. It calls the device schedulers: the plugins
// in the order of their file names, then, if any of them uses it, the built-in group scheduler,
// which serves all resource/group requests.
//
// A request is what one pod requests (package request); its key identifies that. Each plugin in
// turn writes into its containers (a translation), until the group scheduler places what is left (a
// remainder). What plugins answer is cached as far as they declare what their answers depend on. No
// cache changes an answer: a test compares the set with one without caches.
//
// Each argument of a plugin is a copy made for that call, and only what the method's documentation
// names is read from it afterwards. Package pluginhost makes the calls, and keeps from a plugin
// what makes it fail; errors match pluginhost.ErrNoAnswer then.
package allocation
