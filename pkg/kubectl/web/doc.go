// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package web serves the map of a cluster's devices to browsers on the user's own machine, with the
// user's own rights: kubectl device web.
//
// # What is served
//
//	GET /         the page, built from ui/ and embedded
//	GET /stream   all that the map shows, then each change, as server-sent events; see [message]
//	GET /events   the cluster's events about a node or a pod
//	GET /why      why a pod waits: the scheduler's answer, or why there is none
//	GET /whatif   where it would go if the cluster were changed
//	GET /key      the key, for that of an address which opens the map once
//
// The page has no bytes from elsewhere, and its Content-Security-Policy lets it load none.
//
// # Who is served
//
// The address is one of the loopback interface, so other machines do not reach it. Other users and
// programs of this machine do, and so does every page that the user's browser shows. So all but the
// page's own files needs a key, which only the address that is printed has, and which no browser
// sends by itself; a Host of this machine, so that no foreign name can be made to point here; and
// no foreign Origin.
package web
