// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

type answer = pluginapi.ContainerAllocateResponse

// answering is a plugin with one device that answers to Allocate like that. It returns what a
// command prints in a pod that has the device.
func answering(a *answer, command string) func(*side) string {
	return func(s *side) string {
		s.answers(a)
		return s.probe(command)
	}
}

// answers registers a plugin with one device that answers to Allocate like that.
func (s *side) answers(a *answer) *plugin {
	p := s.offers(dev("a"))
	p.Answer = func([]string) []*answer { return []*answer{a} }
	return p.serve().register()
}

func node(host, container, permissions string) *pluginapi.DeviceSpec {
	return &pluginapi.DeviceSpec{HostPath: host, ContainerPath: container, Permissions: permissions}
}

// cdi is an answer that names CDI devices.
func cdi(names ...string) *answer {
	a := &answer{}
	for _, name := range names {
		a.CdiDevices = append(a.CdiDevices, &pluginapi.CDIDevice{Name: name})
	}
	return a
}

func nodes(all ...*pluginapi.DeviceSpec) *answer { return &answer{Devices: all} }

// answers are the environments, devices and names that plugins answer with.
func answers() []behaviour {
	many := map[string]string{}
	for i := range 200 {
		many[fmt.Sprintf("DIFF_%d", i)] = fmt.Sprint(i)
	}
	envs := func(all map[string]string) *answer { return &answer{Envs: all} }
	return []behaviour{
		{name: "sets a variable", row: "env", want: "x",
			play: answering(envs(map[string]string{"DIFF": "x"}), "echo $DIFF")},
		{name: "sets an empty variable", row: "envempty", want: "set to",
			play: answering(envs(map[string]string{"DIFF": ""}), "echo ${DIFF+set to $DIFF}")},
		{name: "sets 200 variables", row: "envs", want: "200", play: answering(envs(many), "env | grep -c ^DIFF_")},
		{name: "sets a variable of 60,000 bytes", row: "envlong", want: "60000",
			play: answering(envs(map[string]string{"DIFF": strings.Repeat("x", 60_000)}), "echo ${#DIFF}")},
		{name: "answers with more than 64 KiB", row: "envlonger", want: "70000", here: doesNotRun,
			reason: "An answer may have 64 KiB",
			play:   answering(envs(map[string]string{"DIFF": strings.Repeat("x", 70_000)}), "echo ${#DIFF}")},
		{name: "sets a variable that the pod sets, too", row: "envpod", want: "pod", here: "plugin",
			reason: "A variable that the pod sets, too, has the plugin's value",
			play: func(s *side) string {
				s.answers(envs(map[string]string{"DIFF": "plugin"}))
				pod := s.pod("echo $DIFF", s.one())
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DIFF", Value: "pod"}}
				return s.run(pod)
			}},
		{name: "passes a device", row: "node", want: "/dev/diff0 rw; /dev/diff1 is not there",
			play: answering(nodes(node("/dev/diff0", "/dev/diff0", "rw")), "can /dev/diff0; can /dev/diff1")},
		{name: "passes a device to be read", row: "read", want: "/dev/diff0 r",
			play: answering(nodes(node("/dev/diff0", "/dev/diff0", "r")), "can /dev/diff0")},
		{name: "passes a device with all permissions", row: "mrw", want: "/dev/diff0 rw",
			play: answering(nodes(node("/dev/diff0", "/dev/diff0", "mrw")), "can /dev/diff0")},
		{name: "passes a device without permissions", row: "noperm", want: doesNotRun, here: "/dev/diff0 rw",
			reason: "A device without permissions has all of them",
			play:   answering(nodes(node("/dev/diff0", "/dev/diff0", "")), "can /dev/diff0")},
		{name: "passes a device with permissions of which one is none", row: "oddperm", want: "/dev/diff0 r",
			play: answering(nodes(node("/dev/diff0", "/dev/diff0", "rx")), "can /dev/diff0")},
		{name: "passes a device with permissions that are none", row: "badperm", want: doesNotRun,
			play: answering(nodes(node("/dev/diff0", "/dev/diff0", "x")), "can /dev/diff0")},
		{name: "passes a device at another path", row: "path", want: "/dev/other rw; /dev/diff0 is not there",
			play: answering(nodes(node("/dev/diff0", "/dev/other", "rw")), "can /dev/other; can /dev/diff0")},
		{name: "passes a device at two paths", row: "paths", want: "/dev/diff0 rw; /dev/other rw", play: answering(
			nodes(node("/dev/diff0", "/dev/diff0", "rw"), node("/dev/diff0", "/dev/other", "rw")),
			"can /dev/diff0; can /dev/other")},
		{name: "passes two devices at one path", row: "onepath", want: "120 0", play: answering(
			nodes(node("/dev/diff0", "/dev/other", "rw"), node("/dev/diff1", "/dev/other", "rw")),
			`stat -c "%t %T" /dev/other | { read a b; echo $((0x$a)) $((0x$b)); }`)},
		{name: "passes a device by a link", row: "link", want: "/dev/difflink rw",
			play: answering(nodes(node("/dev/difflink", "/dev/difflink", "rw")), "can /dev/difflink")},
		{name: "passes a device by a path that is not cleaned", row: "nodeunclean", want: "/dev/diff0 rw",
			play: answering(nodes(node("/dev//diffs/../diff0", "/dev/diff0", "rw")), "can /dev/diff0")},
		{name: "passes a directory of devices", row: "directory", want: "/dev/diffs/a rw; /dev/diffs/b rw",
			play: answering(nodes(node("/dev/diffs", "/dev/diffs", "rw")), "can /dev/diffs/a; can /dev/diffs/b")},
		{name: "passes a directory without devices", row: "emptydir", want: "ran", here: doesNotRun,
			reason: "A directory without any is refused",
			play:   answering(nodes(node("/dev/diffnone", "/dev/diffnone", "rw")), "echo ran")},
		{name: "passes a device that is not there", row: "absent", want: doesNotRun,
			play: answering(nodes(node("/dev/diff9", "/dev/diff9", "rw")), "echo ran")},
		{name: "passes a file as a device", row: "file", want: doesNotRun,
			play: answering(nodes(node("/dev/difffile", "/dev/difffile", "rw")), "echo ran")},
		{name: "annotates the container", row: "annotation", want: "ran",
			play: answering(&answer{Annotations: map[string]string{"diff.example/a": "b"}}, "echo ran")},
		{name: "sets an annotation that is the kubelet's", row: "kubelets", want: "ran",
			play: answering(&answer{Annotations: map[string]string{"io.kubernetes.container.hash": "b"}}, "echo ran")},
		{name: "names a CDI device", row: "cdi", want: "there",
			play: answering(cdi("diff.example/cdi=there"), "echo $DIFF_CDI")},
		{name: "names a CDI device twice", row: "cditwice", want: "there",
			play: answering(cdi("diff.example/cdi=there", "diff.example/cdi=there"), "echo $DIFF_CDI")},
		{name: "names a CDI device that is not there", row: "cdinone", want: doesNotRun,
			play: answering(cdi("diff.example/cdi=none"), "echo ran")},
		{name: "names a CDI device by no CDI name", row: "cdibad", want: doesNotRun,
			play: answering(cdi("there"), "echo ran")},
		{name: "answers nothing", row: "nothing", want: doesNotRun, play: func(s *side) string {
			p := s.offers(dev("a"))
			p.Answer = func([]string) []*answer { return nil }
			p.serve().register()
			return s.probe("echo ran")
		}},
		{name: "answers for two containers", row: "answerstwo", want: "1", play: func(s *side) string {
			p := s.offers(dev("a"))
			p.Answer = func([]string) []*answer {
				return []*answer{envs(map[string]string{"DIFF": "1"}), envs(map[string]string{"DIFF": "2"})}
			}
			p.serve().register()
			return s.probe("echo $DIFF")
		}},
		{name: "answers with an empty answer", row: "empty", want: "ran", play: answering(&answer{}, "echo ran")},
	}
}

func mount(container, host string, readOnly bool) *pluginapi.Mount {
	return &pluginapi.Mount{ContainerPath: container, HostPath: host, ReadOnly: readOnly}
}

// mounts are the mounts that plugins answer with.
func mounts() []behaviour {
	const one, two, none = "/var/lib/diff/one", "/var/lib/diff/two", "/var/lib/diff/none"
	of := func(all ...*pluginapi.Mount) *answer { return &answer{Mounts: all} }
	writes := "echo x 2>/dev/null >/l/new && echo written || echo not written; rm -f /l/new"
	return []behaviour{
		{name: "mounts a directory", row: "mount", want: "one; written",
			play: answering(of(mount("/l", one, false)), "cat /l/file; echo; "+writes)},
		{name: "mounts a directory to be read", row: "mountro", want: "one; not written",
			play: answering(of(mount("/l", one, true)), "cat /l/file; echo; "+writes)},
		{name: "mounts a file", row: "mountfile", want: "one",
			play: answering(of(mount("/l", one+"/file", true)), "cat /l")},
		{name: "mounts a directory that is not there", row: "mountnone", want: "directory",
			play: answering(of(mount("/l", none+"/new", false)), "[ -d /l ] && echo directory")},
		{name: "mounts by paths that are not cleaned", row: "mountunclean", want: "one",
			play: answering(of(mount("/l/", one+"/../one/", true)), "cat /l/file")},
		{name: "mounts two directories at one path", row: "mounttwo", want: "one",
			play: answering(of(mount("/l", one, true), mount("/l", two, true)), "cat /l/file")},
		{name: "mounts at the path of the pod's volume", row: "mountvolume", want: "volume",
			play: func(s *side) string {
				s.answers(of(mount("/l", one, true)))
				pod := s.pod("[ -e /l/file ] && echo plugin || echo volume", s.one())
				pod.Spec.Volumes = []corev1.Volume{{
					Name: "l", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
				}}
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "l", MountPath: "/l"}}
				return s.run(pod)
			}},
		{name: "mounts below the path of the pod's volume", row: "mountbelow", want: "one", play: func(s *side) string {
			s.answers(of(mount("/l/below", one, true)))
			pod := s.pod("cat /l/below/file", s.one())
			pod.Spec.Volumes = []corev1.Volume{{
				Name: "l", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "l", MountPath: "/l"}}
			return s.run(pod)
		}},
		{name: "mounts the whole file system", row: "mountroot", want: "directory", here: doesNotRun,
			reason: "The whole file system of the node is not mounted",
			play:   answering(of(mount("/l", "/", true)), "[ -d /l/dev ] && echo directory")},
		{name: "passes a device whose node the pod mounts", row: "mountnode", want: "/dev/diff0 rw",
			play: func(s *side) string {
				s.answers(nodes(node("/dev/diff0", "/dev/diff0", "rw")))
				pod := s.pod("can /dev/diff0", s.one())
				pod.Spec.Volumes = []corev1.Volume{{
					Name: "d", VolumeSource: corev1.VolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: "/dev/diff0"},
					},
				}}
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "d", MountPath: "/dev/diff0"}}
				return s.run(pod)
			}},
	}
}

// both registers a second plugin, and returns what a command prints in a pod that
// has a device of each.
func both(first, second *answer, command string) func(*side) string {
	return func(s *side) string {
		s.answers(first)
		other := &side{host: s.host, ctx: s.ctx, row: s.row + "-2", resource: s.resource + "-2"}
		defer other.end()
		other.answers(second)
		return s.run(s.pod(command, map[types.ResourceName]int64{s.resource: 1, other.resource: 1}))
	}
}

// together are the answers of two plugins of one container. With the kubelet their order is by
// chance, so that the outcomes are those that do not depend on it.
func together() []behaviour {
	set := func(value string) *answer { return &answer{Envs: map[string]string{"DIFF": value}} }
	return []behaviour{
		{name: "two plugins pass devices", row: "twonodes", want: "/dev/diff0 rw; /dev/diff1 rw", play: both(
			nodes(node("/dev/diff0", "/dev/diff0", "rw")), nodes(node("/dev/diff1", "/dev/diff1", "rw")),
			"can /dev/diff0; can /dev/diff1")},
		{name: "two plugins pass a device with different permissions", row: "twoperms", want: "/dev/diff0 rw",
			play: both(
				nodes(node("/dev/diff0", "/dev/diff0", "rw")), nodes(node("/dev/diff0", "/dev/diff0", "mrw")),
				"can /dev/diff0")},
		{name: "two plugins pass different devices at one path", row: "twopath", want: "/dev/other rw", play: both(
			nodes(node("/dev/diff0", "/dev/other", "rw")), nodes(node("/dev/diff1", "/dev/other", "rw")),
			"can /dev/other")},
		{name: "two plugins set a variable alike", row: "twoenv", want: "x",
			play: both(set("x"), set("x"), "echo $DIFF")},
		{name: "two plugins set a variable to different values", row: "twoenvs", want: "one of them",
			play: both(set("x"), set("y"), `case $DIFF in x|y) echo one of them;; esac`)},
		{name: "two plugins mount different directories at one path", row: "twomounts", want: "one of them", play: both(
			&answer{Mounts: []*pluginapi.Mount{mount("/l", "/var/lib/diff/one", true)}},
			&answer{Mounts: []*pluginapi.Mount{mount("/l", "/var/lib/diff/two", true)}},
			`case $(cat /l/file) in one|two) echo one of them;; esac`)},
		{name: "two plugins set an annotation to different values", row: "twoannotations", want: "ran", play: both(
			&answer{Annotations: map[string]string{"diff.example/a": "1"}},
			&answer{Annotations: map[string]string{"diff.example/a": "2"}}, "echo ran")},
		{name: "two plugins name one CDI device", row: "twocdi", want: "there", play: both(
			cdi("diff.example/cdi=there"),
			cdi("diff.example/cdi=there"), "echo $DIFF_CDI")},
		{name: "a plugin passes a device where another mounts one", row: "twokinds", want: "/dev/diff0 rw", play: both(
			nodes(node("/dev/diff0", "/dev/diff0", "rw")),
			&answer{Mounts: []*pluginapi.Mount{mount("/dev/diff0", "/dev/diff0", false)}}, "can /dev/diff0")},
	}
}
