// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance tests a vendor's plugins: whether they do what the SDK's documentation, or
// the kubelet's device-plugin API, says of them.
//
// A plugin is a file of the SDK ([Files]) or the socket of a kubelet device plugin ([Socket]). The
// checks are tables: deviceChecks, schedulerChecks, socketChecks. Each does what the hosts do with
// a plugin, with inputs that they may get, and says in one line what is wrong and what to do.
//
// A plugin may panic, hang, or end its process. So a child process, this program started again,
// loads the file and runs the checks one by one. After one that failed, another child goes on: what
// a check leaves behind changes no other check. A check that presupposes another one is not
// applicable where that one failed: a fault is reported once.
package conformance
