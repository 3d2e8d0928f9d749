// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// hasPart makes the API server's pod carry an allocation, with a seal of key number.
func (f *fixture) hasPart(
	t *testing.T, uid string, number byte, devices map[string][]types.ResourceName, change func(*seal.Decision),
) {
	t.Helper()
	f.hasPartText(uid, sealed(t, number, uid, allocation(t, "pod-"+uid, "node-1", devices), change))
}

// hasPartText is carries for annotations as they are.
func (f *fixture) hasPartText(uid string, annotations map[string]string) {
	pod := requesting
	pod.Namespace, pod.Name = "default", "pod-"+uid
	pod.Allocation, pod.Seal = annotations[deviceinfo.Annotation], annotations[seal.Annotation]
	f.pods[uid] = pod
}

// generation makes a decision one of that generation.
func generation(number int64) func(*seal.Decision) {
	return func(d *seal.Decision) { d.Generation = number }
}

// The kubelet makes a container's annotations from the pod as it knows it, which may be later than
// this node's watch.
func TestAContainerThatIsCreatedBringsTheAnswer(t *testing.T) {
	const uid = "u1"
	f := newFixture(t, true)
	f.withSeals(seal.Enforce, nil)
	f.pods[uid] = requesting
	with := func(card types.ResourceName, change func(*seal.Decision)) map[string]string {
		devices := map[string][]types.ResourceName{"main": {card}}
		return sealed(t, 1, uid, allocation(t, "pod-"+uid, "node-1", devices), change)
	}
	if _, err := f.create(t, uid, "main", "api", with(card0, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Grants.(*grants.Checkpoint).RequestReplacement(uid, 0, []string{"main"}); err != nil {
		t.Fatal(err)
	}
	f.hasPartText(uid, with(card0, nil)) // as the watch has it
	config, err := f.create(t, uid, "main", "api", with(card1, generation(1)))
	if err != nil || len(config.GetDevices()) != 1 || config.GetDevices()[0].GetHostPath() != "/dev/gpu1" {
		t.Errorf("the container has %v, error %v; want /dev/gpu1", config.GetDevices(), err)
	}
}

func TestOnlyAVerifiedLaterAllocationReplacesTheGrantedOne(t *testing.T) {
	const uid = "u1"
	type devices = map[string][]types.ResourceName
	for name, test := range map[string]struct {
		now   func(t *testing.T, f *fixture)
		was   func(granted *grants.Allocation) // changes what was granted; it may be nil
		taken int64                            // generation
		seen  int64
		says  string // the reason, none if it is empty
	}{
		"the one that was requested": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(1))
		}, taken: 1, seen: 1},
		"one of a later generation": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(5))
		}, taken: 5, seen: 5},
		"the same one": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card0}}, nil)
		}},
		"the same devices of a later generation": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card0}}, generation(2))
		}, taken: 2, seen: 2},
		"other devices of the same generation": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, nil)
		}},
		"a generation that a tenant has written into the seal of the first": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(1))
			pod := f.pods[uid]
			parts := strings.Split(pod.Seal, ".")
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(2))
			other := f.pods[uid]
			parts[1] = strings.Split(other.Seal, ".")[1]
			other.Seal = strings.Join(parts, ".")
			f.pods[uid] = other
		}, says: "did not sign it"},
		"one with the seal of another key": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 2, devices{"main": {card1}}, generation(1))
		}, says: "is signed with key"},
		"one that is sealed for another node": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, func(d *seal.Decision) {
				d.Generation, d.Node = 1, "node-2"
			})
		}, says: "node-2"},
		"one for a container that was not requested": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card0}, "side": {card1}}, generation(1))
		}, seen: 1, says: `it gives container "side" other devices, and this node did not request any`},
		"one without a container that has devices": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(1))
		}, was: func(granted *grants.Allocation) {
			granted.PodInfo = granted.PodInfo.Clone()
			granted.PodInfo.RunningContainers["other"] = granted.PodInfo.RunningContainers["main"]
		}, seen: 1, says: `it does not have container "other"`},
		"one with a device of which it takes nothing": {now: func(t *testing.T, f *fixture) {
			annotations := allocation(t, "pod-"+uid, "node-1", devices{"main": {card1}})
			annotations[deviceinfo.Annotation] = strings.Replace(annotations[deviceinfo.Annotation], `cards":1`,
				`cards":0`, 1)
			f.hasPartText(uid, sealed(t, 1, uid, annotations, generation(1)))
		}, seen: 1, says: "has no quantity"},
		"one that is too large for the runtime": {now: func(t *testing.T, f *fixture) {
			many := make([]types.ResourceName, 200)
			for i := range many {
				many[i] = types.ResourceName(fmt.Sprintf("resource/group/gpu/%040d/cards", i))
			}
			f.hasPart(t, uid, 1, devices{"main": many}, generation(1))
		}, seen: 1, says: "bytes"},
		"any for a pod that the kubelet gave its devices": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(1))
		}, was: func(granted *grants.Allocation) { granted.Adopted = true }, seen: 1, says: "the kubelet gave the pod"},
		"one beside a container of which nothing is known": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}, "side": {"resource/group/gpu/3/cards"}}, generation(1))
		}, was: func(granted *grants.Allocation) {
			granted.Partial, granted.PodInfo = true, granted.PodInfo.Clone()
			delete(granted.PodInfo.RunningContainers, "side")
		}, taken: 1, seen: 1},
		"one with a device that is unhealthy, too": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {sick}}, generation(1))
		}, seen: 1, says: "must not be used"},
		"one with a device that is not there": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {"resource/group/gpu/9/cards"}}, generation(1))
		}, seen: 1, says: "is not on node"},
		"one without devices": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {}}, generation(1))
		}, seen: 1, says: "gives it no device"},
		"one with a device of another pod": {now: func(t *testing.T, f *fixture) {
			f.pods["u2"] = requesting
			annotations := sealed(t, 1, "u2", allocation(t, "pod-u2", "node-1", devices{"main": {card1}}), nil)
			if _, err := f.create(t, "u2", "main", "api", annotations); err != nil {
				t.Fatal(err)
			}
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(1))
		}, seen: 1, says: "default/pod-u2"},
		"any where seals are not enforced": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(1))
			f.withSeals(seal.Warn, nil)
		}, says: "not enforced"},
		"any while no key is known": {now: func(t *testing.T, f *fixture) {
			f.hasPart(t, uid, 1, devices{"main": {card1}}, generation(1))
			f.withSeals(seal.Enforce, errors.New("no such file"))
		}, says: "no such file"},
		"none: the pod is gone": {now: func(_ *testing.T, f *fixture) { delete(f.pods, uid) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, true)
			f.withSeals(seal.Enforce, nil)
			f.pods[uid] = requesting
			first := sealed(t, 1, uid, allocation(t, "pod-"+uid, "node-1", devices{"main": {card0}}), nil)
			if _, err := f.create(t, uid, "main", "api", first); err != nil {
				t.Fatal(err)
			}
			record := f.Grants.(*grants.Checkpoint)
			if _, err := record.RequestReplacement(uid, 0, []string{"main"}); err != nil {
				t.Fatal(err)
			}
			before, _, _ := record.Granted(t.Context(), uid)
			if _, err := record.Responses().Put(uid, "main", "vendor.example/card", []byte("card")); err != nil {
				t.Fatal(err)
			}
			test.now(t, f)
			granted := before
			if test.was != nil {
				test.was(&granted)
			}
			answer := f.Replace(t.Context(), granted)
			err := answer.Reason
			if answer.Allocation.Generation != test.taken || answer.Generation != test.seen ||
				(err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("generation %d is taken and %d seen, reason %v; want %d, %d, %q", answer.Allocation.Generation,
					answer.Generation, err, test.taken, test.seen, test.says)
			}
			want := grants.AnswerAbsent
			switch {
			case test.taken > 0:
				want = grants.AnswerTaken
			case test.seen > 0:
				want = grants.AnswerRefused
			case test.says != "":
				want = grants.AnswerUnverified
			}
			if answer.State != want {
				t.Errorf("the answer is %s, want %s", answer.State, want)
			}
			after, _, _ := record.Granted(t.Context(), uid)
			// What a kubelet device plugin answered is about the devices of before.
			_, cached := record.Responses().Get(uid, "main", "vendor.example/card")
			replaced := !cmp.Equal(before.PodInfo, after.PodInfo)
			if refused := err != nil; cached == replaced && !refused {
				t.Errorf("the plugin's response is cached: %v; the devices are replaced: %v", cached, replaced)
			}
			if test.taken == 0 {
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("what the pod holds has changed:\n%s", diff)
				}
				return
			}
			// Its next container has what was taken.
			device := "/dev/gpu1"
			if name == "the same devices of a later generation" {
				device = "/dev/gpu0"
			}
			config, err := f.create(t, uid, "main", "api", first)
			if err != nil || len(config.GetDevices()) != 1 || config.GetDevices()[0].GetHostPath() != device {
				t.Errorf("its next container has %v, error %v; want %s", config.GetDevices(), err, device)
			}
		})
	}
}
