// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failpoint names the moments at which tests kill kubecri, to prove that a crash at any of
// them costs no container and gives no device to two pods.
//
// A kubecri that is built with the tag failpoint ends itself with SIGKILL at the point that a file
// names. Releases are built without the tag: there Reach is empty.
package failpoint

import "slices"

// Point is a moment in the life of kubecri. Its text is what the file says.
type Point string

// The points, in the order in which the creation of a container reaches them; then those of other
// calls and of the background; then those of a replacement, in its order. Where kubecri is an NRI
// plugin, the runtime makes the request, and hears the answer: then it forwards the adjustment, and
// has answered when it has created the container.
const (
	// Accepted is when a call that is edited was accepted and its request is not there yet.
	Accepted Point = "accepted"
	// Received is when the bytes of its request are there.
	Received Point = "received"
	// Decoded is when the request of a CreateContainer is read.
	Decoded Point = "decoded"
	// Granting is when a pod's allocation is verified and not written yet.
	Granting Point = "granting"
	// Writing is when a change of the checkpoint is in a file that is not in its place yet.
	Writing Point = "writing"
	// Written is when the file is in its place, on disk, and the memory does not have it yet.
	Written Point = "written"
	// Granted is when the memory has it too.
	Granted Point = "granted"
	// PluginCalled is when the device plugins answered what the container needs.
	PluginCalled Point = "plugin-called"
	// Forwarding is when the edited request is complete and the runtime has heard nothing.
	Forwarding Point = "forwarding"
	// Forwarded is when the request is sent to the runtime, which may have it or not.
	Forwarded Point = "forwarded"
	// Answered is when the runtime's answer is there and the kubelet has heard nothing.
	Answered Point = "answered"
	// Replied is when the kubelet has the answer and the call has no status yet.
	Replied Point = "replied"
	// Streaming is after the second message, and each one after that, of an answer that is a
	// stream.
	Streaming Point = "streaming"
	// Reconciling is when the runtime has listed its containers and the checkpoint was not compared
	// with them yet.
	Reconciling Point = "reconciling"
	// Replacing is when the next generation of a pod's allocation is verified and not written yet.
	Replacing Point = "replacing"
	// Replaced is when it is written, and the container has its previous devices.
	Replaced Point = "replaced"
	// Ended is when the runtime has ended that container, for which the devices are still held.
	Ended Point = "ended"
	// Releasing is when it is seen that nothing uses the previous devices any more, and they are
	// held still.
	Releasing Point = "releasing"
)

var (
	creation = []Point{
		Accepted, Received, Decoded, Granting, Writing, Written, Granted, PluginCalled, Forwarding, Forwarded,
		Answered, Replied, Streaming, Reconciling,
	}
	replacement = []Point{Replacing, Replaced, Ended, Releasing}
)

// Points returns all points.
func Points() []Point { return slices.Concat(creation, replacement) }

// OfReplacement reports whether the point is reached when a container is given other devices, and
// at no other time.
func (p Point) OfReplacement() bool { return slices.Contains(replacement, p) }
