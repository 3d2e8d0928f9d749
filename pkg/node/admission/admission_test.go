// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestContainersAreAdmittedOrRefused(t *testing.T) {
	type (
		annotations func(*testing.T) map[string]string
		devices     map[string][]types.ResourceName
	)
	gives := func(pod, node string, to devices) annotations {
		return func(t *testing.T) map[string]string { return allocation(t, pod, node, to) }
	}
	forHere := func(from ...types.ResourceName) annotations {
		return gives("pod-u", "node-1", devices{"main": from})
	}
	text := func(value string) annotations {
		return func(*testing.T) map[string]string { return map[string]string{deviceinfo.Annotation: value} }
	}
	bound := func(main string) annotations {
		return text(`{"podname":"pod-u","nodename":"node-1","runningcontainer":{"main":{` + main + `}}}`)
	}
	for name, test := range map[string]struct {
		source      string
		known       *pods.Pod
		container   string
		annotations annotations
		broken      bool // every plugin is
		want        Outcome
		code        codes.Code
		says        string
	}{
		"a pod that requests nothing passes":                 {known: &plain, want: Passed},
		"and does so when every plugin is broken":            {known: &plain, broken: true, want: Passed},
		"so does one that requests somebody else's resource": {known: &other, want: Passed},
		"also when all plugins are broken":                   {known: &other, broken: true, want: Passed},
		"a static pod passes":                                {source: "file", want: Passed},
		"a static pod passes without the devices that it claims": {
			source: "file", annotations: forHere(card0), want: Passed,
		},
		"a pod that nobody knows yet is asked to come again": {
			want: Refused, code: codes.Unavailable, says: "not known",
		},
		"a pod with an allocation gets its devices": {
			known: &requesting, annotations: forHere(card0), want: Injected,
		},
		"so does one that requests in the annotation alone": {
			known: &plain, annotations: forHere(card0, card1), want: Injected,
		},
		"a pod that asks and has no annotation is refused": {
			known: &requesting, want: Refused, code: codes.FailedPrecondition, says: "no allocation",
		},
		"also when the plugin behind the resource is broken": {
			known: &before, broken: true, want: Refused, code: codes.FailedPrecondition, says: "no allocation",
		},
		"a pod that requests in the annotation and was bound by another scheduler is refused": {
			known:       &plain,
			annotations: text(`{"runningcontainer":{"main":{"requests":{"resource/group/gpu/a/cards":1}}}}`),
			want:        Refused, code: codes.FailedPrecondition, says: "no allocation",
		},
		"an allocation for another node is refused": {
			known: &requesting, annotations: gives("pod-u", "node-2", devices{"main": {card0}}), want: Refused,
			code: codes.FailedPrecondition, says: "node-2",
		},
		"an allocation for another pod is refused": {
			known: &requesting, annotations: gives("pod-v", "node-1", devices{"main": {card0}}), want: Refused,
			code: codes.FailedPrecondition, says: "pod-v",
		},
		"an annotation that cannot be read is refused": {
			known: &plain, annotations: text("{"), want: Refused, code: codes.FailedPrecondition,
			says: deviceinfo.Annotation,
		},
		"an annotation that requests nothing passes": {
			known: &plain, annotations: text(`{"runningcontainer":{"main":{"scorer":{"x":1}}}}`), want: Passed,
		},
		"a device that is not here is refused": {
			known: &requesting, annotations: forHere("resource/group/gpu/9/cards"), want: Refused,
			code: codes.FailedPrecondition, says: `gpu/9/cards is not on node "node-1"`,
		},
		"a device that is sick is refused": {
			known: &requesting, annotations: forHere(sick), want: Refused, code: codes.FailedPrecondition,
			says: "unhealthy",
		},
		"a device whose plugin is broken is refused": {
			known: &requesting, annotations: forHere(card0), broken: true, want: Refused,
			code: codes.FailedPrecondition, says: "is not on node",
		},
		"one card twice in a pod is refused": {
			known: &requesting, annotations: forHere(card0, card0), want: Refused, code: codes.FailedPrecondition,
			says: "the node has 1",
		},
		"a container that asks and was given nothing is refused": {
			known: &requesting, annotations: gives("pod-u", "node-1", devices{"side": {card0}}), want: Refused,
			code: codes.FailedPrecondition, says: "gives it no device",
		},
		"a container that requests two kinds of devices gets both": {
			known: &both, annotations: forHere(card0, widget0), want: Injected,
		},
		"a container that requests two kinds and was given the first is refused": {
			known: &both, annotations: forHere(card0, card1), want: Refused, code: codes.FailedPrecondition,
			says: "requests example.com/widget",
		},
		"a container that requests two kinds and was given the second is refused": {
			known: &both, annotations: forHere(widget0), want: Refused, code: codes.FailedPrecondition,
			says: "requests example.com/gpu",
		},
		"no container of a pod starts when another one's allocation lacks a device": {
			known: &both, container: "side", annotations: forHere(card0), want: Refused, code: codes.FailedPrecondition,
			says: `container "main" requests example.com/widget`,
		},
		"a container of a device pod that requests nothing passes": {
			known: &requesting, container: "side", annotations: forHere(card0), want: Passed,
		},
		"a device without a quantity, which nobody would count, is refused": {
			known:       &plain,
			annotations: bound(`"allocatefrom":{"resource/group/gpu/a/cards":"resource/group/gpu/0/cards"}`),
			want:        Refused, code: codes.FailedPrecondition, says: "no quantity",
		},
		"a request that was not met is refused": {
			known: &plain, annotations: bound(`"devrequests":{"resource/group/gpu/a/cards":1}`), want: Refused,
			code: codes.FailedPrecondition, says: "allocated nothing",
		},
		"a device for a container that the pod does not have is refused": {
			known: &requesting, annotations: gives("pod-u", "node-1", devices{"main": {card0}, "ghost": {card1}}),
			want: Refused, code: codes.FailedPrecondition,
			says: `runningcontainer["ghost"]: the pod has no such container`,
		},
		"a device for an init container among those that run along is refused": {
			known: &requesting, annotations: gives("pod-u", "node-1", devices{"main": {card0}, "first": {card1}}),
			want: Refused, code: codes.FailedPrecondition, says: "write it under initcontainer",
		},
		"a sidecar's device is among those of the containers that run along": {
			known: &requesting, annotations: gives("pod-u", "node-1", devices{"main": {card0}, "log": {card1}}),
			want: Injected,
		},
		"a bound pod whose annotation is malformed is refused with the place": {
			known: &requesting, annotations: bound(`"devrequests":{"resource/group/gpu/a/cards":-1}`), want: Refused,
			code: codes.FailedPrecondition, says: `runningcontainer["main"].devrequests["resource/group/gpu/a/cards"]`,
		},
		"a plain count instead of a device is refused": {
			known: &requesting, annotations: forHere(gpu), want: Refused, code: codes.FailedPrecondition,
			says: "no device resource",
		},
		"a user's request that the scheduler made nothing of is refused": {
			known: &plain, annotations: bound(`"requests":{"resource/group/gpu/a/cards":1}`), want: Refused,
			code: codes.FailedPrecondition, says: "allocated nothing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, !test.broken)
			<-f.Devices.Synced()
			want := 2
			if test.broken {
				want = 0
			}
			f.waitForDevices(t, want)
			if test.known != nil {
				f.pods["u"] = *test.known
			}
			source, container := test.source, test.container
			if source == "" {
				source = "api"
			}
			if container == "" {
				container = "main"
			}
			var annotations map[string]string
			if test.annotations != nil {
				annotations = test.annotations(t)
			}
			config, err := f.create(t, "u", container, source, annotations)
			if diff := cmp.Diff([]Outcome{test.want}, f.outcomes); diff != "" {
				t.Fatalf("outcome (-want +got):\n%s\n%v", diff, err)
			}
			if got := status.Code(err); got != test.code {
				t.Errorf("code %v, want %v: %v", got, test.code, err)
			}
			if err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
			if tell := test.code == codes.FailedPrecondition; (len(f.warnings) == 1) != tell ||
				tell && !strings.Contains(f.warnings[0], test.says) {
				t.Errorf("the pod was warned %q", f.warnings)
			}
			if (config != nil) != (test.want == Injected) {
				t.Errorf("config %v", config)
			}
		})
	}
}

func TestOnANewNodeOnlyPodsThatMayRequestDevicesWait(t *testing.T) {
	for name, test := range map[string]struct {
		pod     pods.Pod
		plugins bool
		want    codes.Code
	}{
		"a pod that requests nothing, without a plugin":                {pod: plain, want: codes.OK},
		"a pod that requests some extended resource, without a plugin": {pod: other, want: codes.Unavailable},
		"the same when every plugin has spoken":                        {pod: other, plugins: true, want: codes.OK},
		"a pod without an allocation when every plugin has spoken": {
			pod: requesting, plugins: true, want: codes.FailedPrecondition,
		},
	} {
		f := newFixture(t, test.plugins)
		f.pods["u"] = test.pod
		f.Admission.Pods = nodePods{f.pods, registryOf(f.Devices)}
		_, err := f.create(t, "u", "main", "api", nil)
		if status.Code(err) != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if test.want == codes.Unavailable && len(f.warnings) > 0 {
			t.Errorf("%s: its owner got the event %q, though it need not be a device pod", name, f.warnings)
		}
	}
}

func TestARequestThatCannotBeReadIsRefused(t *testing.T) {
	f := newFixture(t, true)
	for _, edit := range []func(context.Context, []byte) ([]byte, error){f.CreateContainer, f.RestorePod} {
		if _, err := edit(context.Background(), []byte{0xff}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
	}
}
