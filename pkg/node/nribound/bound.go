// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nribound bounds the messages in which a container runtime describes a container, a
// sandbox and all containers of a pod to its NRI plugins. All functions are pure and safe for
// concurrent use.
//
// A runtime sends the list of all sandboxes and containers to each plugin that registers, in ttrpc
// messages of at most Message bytes (github.com/containerd/ttrpc, messageLengthMax), and creates
// containers without the plugin if it cannot. What it does with a longer list is in
// github.com/containerd/nri, pkg/adaptation/plugin.go, synchronize and recalcObjsPerSyncMsg: it
// sends fewer objects at a time, in proportion to the excess. That fails in four ways:
//
//   - A message of 8 objects or fewer is not split any further.
//   - If the proportion leaves fewer than 8 objects, it takes four of each kind, even if there are
//     not four left: the runtime panics.
//   - If the proportion leaves none of one kind, it never sends those that remain, and goes on with
//     empty messages until the time for the plugin is over.
//   - All of it has to be sent in that time, 2 seconds by default.
//
// The first two cannot happen if no object is larger than MaxObject. Then a message that is too
// long has 12 objects at least; with n objects of a message of s bytes, the proportion f = min(0.9,
// Message/s) leaves more than n*f-2 of them, and n*f is at least 10. The third cannot happen with
// the first message if no pod, all its containers included, is larger than MaxPod, and there are
// not more than some dozens of large sandboxes to one container: f leaves at least Message/MaxPod
// pods. It becomes unlikely with later ones, as runtimes list in random order; List has the odds.
// The fourth does not happen with the 250 pods that a node has at most, as the strings of each are
// bounded, too: the shortest costs what 50 bytes of a long one cost.
//
// What pods and images set in one container and one sandbox is bounded with the proxy, too, by
// CheckContainer and CheckSandbox: such a pod starts in neither mode. CheckChanged, CheckPod and
// CheckSandboxes are for NRI alone: they bound answers and the list, and a proxy sends no answer
// and is sent no list. To it each container is a request of its own, whose length package admission
// bounds, and without it no container is created. A node that changes to NRI has its list checked
// first (package nrilist).
package nribound

import (
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/encoding/protowire"
)

// All bounds are in bytes of the encoded message.
const (
	// Message is the longest message of ttrpc, without its header.
	Message = 4 << 20
	// envelope is what ttrpc adds to a list: the names of service and method, the time that is
	// left, and the list's own flag. object is what the list adds to an object: a tag and a length.
	envelope, object = 256, 4
	// MaxObject is the largest sandbox or container with which each list of them can be split.
	MaxObject = (Message-envelope)/11 - object
	// MaxContents is how much pod and image may set in a container, and the pod in its sandbox. The
	// rest up to MaxObject, some 50 KiB, is for what runtime, CDI, this program and other plugins
	// add.
	MaxContents = 320 << 10
	// MaxPod is the largest sum of a sandbox and those of its containers that have not ended.
	MaxPod = 512 << 10
	// MaxSandboxes is the largest sum of all sandboxes with which one is started that is larger
	// than SmallSandbox. Sandboxes of pods that have ended are listed as long as the pods exist,
	// and the kubelet's bound of pods does not count them. Package nrifrontend removes them above
	// this sum.
	MaxSandboxes = 8 << 20
	// SmallSandbox is the largest sandbox that is started in any case.
	SmallSandbox = 16 << 10
	// MaxList is the largest list that is sent in time, also on a busy machine.
	MaxList = 128 << 20
)

// Strings are variables, arguments, the parts of mounts, and keys and values of labels and
// annotations.
const (
	// MaxStrings is how many a pod may have together with its containers that have not ended.
	MaxStrings = 10_000
	// MaxListStrings is how many may be in a list that is sent in time, also on a busy machine.
	MaxListStrings = 250 * MaxStrings
)

// Pod names a pod in errors.
type Pod struct{ Namespace, Name string }

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Contents are the parts of an encoded container or sandbox that pods and images set: the size of
// each in bytes, and how many strings they have together.
type Contents struct {
	Variables, Args, Labels, Annotations, Mounts, CDIDevices, Groups int

	Strings int
}

// Plus returns the sum of each part.
func (c Contents) Plus(d Contents) Contents {
	return Contents{
		c.Variables + d.Variables, c.Args + d.Args, c.Labels + d.Labels, c.Annotations + d.Annotations,
		c.Mounts + d.Mounts, c.CDIDevices + d.CDIDevices, c.Groups + d.Groups, c.Strings + d.Strings,
	}
}

// Total returns the sum of their bytes.
func (c Contents) Total() int {
	return c.Variables + c.Args + c.Labels + c.Annotations + c.Mounts + c.CDIDevices + c.Groups
}

// String names the parts that take a tenth or more.
func (c Contents) String() string {
	var parts []string
	for _, part := range []struct {
		name string
		size int
	}{
		{"variables", c.Variables}, {"command and arguments", c.Args}, {"labels", c.Labels},
		{"annotations", c.Annotations}, {"mounts", c.Mounts}, {"CDI devices", c.CDIDevices},
		{"supplemental groups", c.Groups},
	} {
		if part.size*10 >= c.Total() && part.size > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", part.name, part.size))
		}
	}
	return strings.Join(parts, ", ")
}

// ContainerContents returns those of a container that a runtime describes to plugins.
func ContainerContents(c *api.Container) Contents {
	contents := Contents{
		Variables: sizeOfStrings(c.GetEnv()), Args: sizeOfStrings(c.GetArgs()), Labels: sizeOfMap(c.GetLabels()),
		Annotations: sizeOfMap(c.GetAnnotations()),
	}
	contents.Strings = len(c.GetEnv()) + len(c.GetArgs()) + 2*len(c.GetLabels()) + 2*len(c.GetAnnotations()) +
		len(c.GetCDIDevices())
	for _, m := range c.GetMounts() {
		contents.Mounts += field(m.SizeVT())
		contents.Strings += mountPaths + len(m.GetOptions())
	}
	for _, d := range c.GetCDIDevices() {
		contents.CDIDevices += 1 + field(d.SizeVT())
	}
	for _, group := range c.GetUser().GetAdditionalGids() {
		contents.Groups += protowire.SizeVarint(uint64(group))
	}
	return contents
}

// mountPaths are the strings of a mount besides its options: source, destination and type.
const mountPaths = 3

// SandboxContents returns those of a sandbox.
func SandboxContents(s *api.PodSandbox) Contents {
	return contentsOfSandbox(s.GetLabels(), s.GetAnnotations())
}

func contentsOfSandbox(labels, annotations map[string]string) Contents {
	return Contents{
		Labels: sizeOfMap(labels), Annotations: sizeOfMap(annotations), Strings: 2*len(labels) + 2*len(annotations),
	}
}

// field returns the size of a field of that many bytes whose number is below 16.
func field(size int) int { return 1 + protowire.SizeBytes(size) }

func sizeOfStrings(list []string) (size int) {
	for _, s := range list {
		size += field(len(s))
	}
	return size
}

func sizeOfMap(entries map[string]string) (size int) {
	for key, value := range entries {
		size += field(field(len(key)) + field(len(value)))
	}
	return size
}

// Size is what a sandbox, a container, or several of them take in a runtime's list.
type Size struct {
	// Bytes is the length of the encoded messages.
	Bytes int
	// Strings is how many strings pods and images have set in them.
	Strings int
}

// ContainerSize returns the size of a container.
func ContainerSize(c *api.Container) Size { return Size{c.SizeVT(), ContainerContents(c).Strings} }

// AdjustmentSize returns what a change adds to a container, at most.
func AdjustmentSize(a *api.ContainerAdjustment) Size {
	set := ContainerContents(&api.Container{Mounts: a.GetMounts(), CDIDevices: a.GetCDIDevices(), Args: a.GetArgs()})
	return Size{a.SizeVT(), set.Strings + len(a.GetEnv()) + 2*len(a.GetAnnotations())}
}

// SandboxSize returns the size of a sandbox.
func SandboxSize(s *api.PodSandbox) Size { return Size{s.SizeVT(), SandboxContents(s).Strings} }

// Plus returns the sum.
func (s Size) Plus(t Size) Size { return Size{s.Bytes + t.Bytes, s.Strings + t.Strings} }

// Cost returns the bytes of long strings that take as long to send.
func (s Size) Cost() int { return s.Bytes + s.Strings*(MaxList/MaxListStrings) }

// String implements fmt.Stringer.
func (s Size) String() string { return fmt.Sprintf("%d bytes in %d strings", s.Bytes, s.Strings) }

// Advice is the next step for the author of a pod with a container that is too large.
const Advice = "mount ConfigMaps and Secrets as volumes instead of taking variables from them, set " +
	"enableServiceLinks: false, shorten annotations and labels, or use an image with fewer volumes"

// CheckContainer returns an error if the container of that name sets more than MaxContents, or more
// than MaxStrings.
func CheckContainer(pod Pod, container string, contents Contents) error {
	switch {
	case !enforced:
		return nil
	case contents.Strings > MaxStrings:
		return fmt.Errorf("container %q of pod %s: it and its image set %d variables, arguments, labels, annotations "+
			"and paths, and at most %d are allowed: %s", container, pod, contents.Strings, MaxStrings, Advice)
	case contents.Total() <= MaxContents:
		return nil
	}
	return fmt.Errorf("container %q of pod %s: what it and its image set takes %d bytes where the container runtime "+
		"describes it to NRI plugins (%v), and at most %d are allowed: %s", container, pod, contents.Total(), contents,
		MaxContents, Advice)
}

// CheckSandbox returns an error if the pod sets more than MaxContents by itself, or more than
// MaxStrings.
func CheckSandbox(pod Pod, contents Contents) error {
	switch {
	case !enforced:
		return nil
	case contents.Strings > MaxStrings:
		return fmt.Errorf("pod %s: its labels and annotations have %d keys and values, and at most %d are allowed: "+
			"use fewer", pod, contents.Strings, MaxStrings)
	case contents.Total() <= MaxContents:
		return nil
	}
	return fmt.Errorf("pod %s: its labels and annotations take %d bytes where the container runtime describes it to "+
		"NRI plugins (%v), and at most %d are allowed: shorten them", pod, contents.Total(), contents, MaxContents)
}

// CheckSandboxes returns an error if a sandbox of that size is too large together with the others,
// which take so many bytes.
func CheckSandboxes(pod Pod, size, others int) error {
	if !enforced || size <= SmallSandbox || others+size <= MaxSandboxes {
		return nil
	}
	return fmt.Errorf("pod %s: its labels and annotations make a sandbox of %d bytes where the container runtime "+
		"describes it to NRI plugins. Those of the node's other pods, also of pods that have ended, take %d, and at "+
		"most %d are allowed for a sandbox of more than %d: shorten them, or delete pods that have ended", pod, size,
		others, MaxSandboxes, SmallSandbox)
}

// CheckChanged returns an error if a container of that size is larger than MaxObject with what is
// added to it. The addition is the answer to the runtime, so that is far below Message, too.
func CheckChanged(pod Pod, container string, size int, addition *api.ContainerAdjustment) error {
	if added := addition.SizeVT(); enforced && size+added > MaxObject {
		return fmt.Errorf("container %q of pod %s: with the %d bytes that it gets for its devices, or against devices "+
			"that it must not have, it takes %d bytes where the container runtime describes it to NRI plugins, and at "+
			"most %d are allowed: %s, or change the device plugin", container, pod, added, size+added, MaxObject,
			Advice)
	}
	return nil
}

// maxAnswer is the largest change of a container that is sent. The runtime sends it back to plugins
// that validate, together with the container, and with the plugin that set each part.
const maxAnswer = Message - 2*MaxObject

// CheckAnswer returns an error if a change of a container cannot be sent: the connection would end,
// and the runtime would create the container without it.
func CheckAnswer(pod Pod, container string, answer *api.ContainerAdjustment) error {
	if size := answer.SizeVT(); enforced && size > maxAnswer {
		return fmt.Errorf("container %q of pod %s: what kubecri adds to it takes %d bytes, and NRI transports at most "+
			"%d: change the device plugins", container, pod, size, maxAnswer)
	}
	return nil
}

// CheckPod returns an error if a pod is larger than MaxPod, or has more than MaxStrings, with one
// more container. others is the size of its sandbox and of its containers that have not ended.
func CheckPod(pod Pod, container string, others, size Size) error {
	sum := others.Plus(size)
	if !enforced || sum.Bytes <= MaxPod && sum.Strings <= MaxStrings {
		return nil
	}
	return fmt.Errorf("container %q of pod %s: with its %v, sandbox and containers of the pod take %v where the "+
		"container runtime describes them to NRI plugins, and at most %d bytes in %d strings are allowed: %s, or make "+
		"several pods of it", container, pod, size, sum, MaxPod, MaxStrings, Advice)
}

// What a list may have of a pod beyond what was bounded when it was admitted: the runtime, CDI and
// other plugins have added it.
const addedBytes, addedStrings = MaxObject - MaxContents, 1000

// IsTooLarge reports whether no sandbox or container is admitted that has this size in a list.
func IsTooLarge(size Size) bool {
	return enforced && (size.Bytes > MaxObject || size.Strings > MaxStrings+addedStrings)
}

// IsPodTooLarge reports whether no pod is admitted whose sandbox and containers have this size
// together in a list.
func IsPodTooLarge(sum Size) bool {
	return enforced && (sum.Bytes > MaxPod+addedBytes || sum.Strings > MaxStrings+addedStrings)
}
