// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
)

const oneTaint = `{"version":1,"taints":[{"device":"gpu/GPU-a","key":"maintenance","effect":"NoExecute"}]}`

func TestTaintsRoundTripInCanonicalOrder(t *testing.T) {
	added := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	taints := []DeviceTaint{
		{Device: "gpu/GPU-a", Key: CordonKey, Effect: corev1.TaintEffectNoSchedule, TimeAdded: added},
		{Device: "gpu/GPU-a", Key: "team.example.com/of", Value: "x", Effect: corev1.TaintEffectNoExecute},
		{Device: "nvidia.com~gpu/GPU-b", Key: CordonKey, Effect: corev1.TaintEffectNoSchedule},
	}
	reversed := slices.Clone(taints)
	slices.Reverse(reversed)
	value, err := EncodeDeviceTaints(reversed)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"taints":[{"device":"gpu/GPU-a","key":"kubedevice.io/unschedulable",` +
		`"effect":"NoSchedule","timeAdded":"2026-01-02T03:04:05Z"},{"device":"gpu/GPU-a",` +
		`"key":"team.example.com/of","value":"x","effect":"NoExecute"},{"device":"nvidia.com~gpu/GPU-b",` +
		`"key":"kubedevice.io/unschedulable","effect":"NoSchedule"}]}`
	if value != want {
		t.Errorf("written is %s, want %s", value, want)
	}
	read, err := DecodeDeviceTaints(value)
	if diff := cmp.Diff(taints, read); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if none, err := EncodeDeviceTaints(nil); none != "" || err != nil {
		t.Errorf("none are %q, %v", none, err)
	}
	if !taints[0].Cordons() || taints[1].Cordons() {
		t.Error("a cordoned device is one with the taint that says so")
	}
}

func TestDecodeDeviceTaintsNamesWhatItRejects(t *testing.T) {
	entries := func(count int, entry func(i int) string) string {
		var list []string
		for i := range count {
			list = append(list, entry(i))
		}
		return `{"version":1,"taints":[` + strings.Join(list, ",") + `]}`
	}
	with := func(from, to string) string { return strings.Replace(oneTaint, from, to, 1) }
	for name, test := range map[string]struct{ value, want string }{
		"a newer version":     {with(`"version":1`, `"version":2`), `version: it is 2, of which nothing is known here`},
		"no version":          {`{"taints":[]}`, `version: it is 0`},
		"a field of its own":  {with(`"taints"`, `"more":1,"taints"`), `more: nothing is known of it here; remove it`},
		"a field of a taint":  {with(`"key"`, `"unless":"","key"`), `taints[0].unless: nothing is known of it here`},
		"a key twice":         {with(`"key"`, `"key":"a","key"`), `occurs twice`},
		"another case":        {with(`"taints"`, `"Taints"`), `Taints: nothing is known of it here`},
		"no list":             {`{"version":1,"taints":{}}`, `taints: it is an object; write a list`},
		"no string":           {with(`"maintenance"`, `1`), `taints[0].key: it is a number; write a string`},
		"a device by its ID":  {with(`gpu/GPU-a`, `GPU-a`), `taints[0].device: "GPU-a" is not a level with an ID`},
		"a device by a path":  {with(`gpu/`, `gpugrp0/0/gpu/`), `is not a level with an ID`},
		"no device":           {with(`"device":"gpu/GPU-a",`, ``), `taints[0].device: the name is empty`},
		"a key that is none":  {with(`"maintenance"`, `"a b"`), `taints[0].key: "a b" is no key`},
		"a long value":        {with(`"effect"`, `"value":"`+strings.Repeat("v", 64)+`","effect"`), `is no value`},
		"a soft effect":       {with(`NoExecute`, `PreferNoSchedule`), `devices have no PreferNoSchedule`},
		"an unknown effect":   {with(`NoExecute`, `NoWay`), `taints[0].effect: "NoWay" is no effect`},
		"a time that is none": {with(`"key"`, `"timeAdded":"now","key"`), `"now" is no time`},
		"one taint twice": {
			entries(2, func(i int) string {
				return fmt.Sprintf(`{"device":"gpu/a","key":"k","value":"%d","effect":"NoExecute"}`, i)
			}),
			`taints[1]: the device gpu/a has a taint k:NoExecute twice`,
		},
		"too many": {
			entries(MaxDeviceTaints+1, func(i int) string {
				return fmt.Sprintf(`{"device":"gpu/%d","key":"k","effect":"NoExecute"}`, i)
			}),
			`taints: it has more than 512 taints`,
		},
		"too many different ones": {
			entries(MaxDistinctTaints+1, func(i int) string {
				return fmt.Sprintf(`{"device":"gpu/a","key":"k%d","effect":"NoExecute"}`, i)
			}),
			`taints: it has 65 taints that differ in key, value or effect`,
		},
		"too long": {`{"version":1,"taints":[]` + strings.Repeat(" ", MaxDeviceTaintsBytes) + `}`, `use at most 65536`},
		"no JSON":  {`{`, `the value is not JSON`},
	} {
		t.Run(name, func(t *testing.T) {
			taints, err := DecodeDeviceTaints(test.value)
			if taints != nil || err == nil || !strings.Contains(err.Error(), test.want) ||
				!strings.HasPrefix(err.Error(), "annotation KubeDevice/DeviceTaints") || !errors.Is(err, ErrMalformed) {
				t.Errorf("%v, %v; want none and an error with %q", taints, err, test.want)
			}
		})
	}
}

func TestTaintAppliesToADeviceAndItsParts(t *testing.T) {
	taints := []DeviceTaint{{Device: "gpu/GPU-a", Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	for device, want := range map[string]bool{
		"gpu/GPU-a":                     true,
		"gpugrp1/0/gpugrp0/7/gpu/GPU-a": true, // with any groups
		"gpu/GPU-a/mig/MIG-1":           true,
		"gpu/GPU-aa":                    false,
		"bigpu/GPU-a":                   false,
		"pci/gpu/GPU-a/x":               false, // an instance that is called as a level is
		"":                              false,
	} {
		if got := len(TaintsOf(taints, device)) > 0; got != want {
			t.Errorf("%q has the taint: %v, want %v", device, got, want)
		}
	}
	path, err := resource.ParsePath("resource/group/gpugrp0/0/gpu/GPU-a/cards")
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(DevicesOf(path)); !slices.Equal(got, []string{"gpugrp0/0", "gpu/GPU-a"}) {
		t.Errorf("the devices are %q", got)
	}
	if got := TaintedDevice(path.Device()); got != "gpu/GPU-a" {
		t.Errorf("the device is called %q", got)
	}
}

func TestTolerationsMatchLikeThoseOfNodeTaints(t *testing.T) {
	taint := corev1.Taint{Key: "dedicated", Value: "training", Effect: corev1.TaintEffectNoExecute}
	for name, test := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"everything":             {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"the key":                {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}, true},
		"the value":              {corev1.Toleration{Key: "dedicated", Value: "training"}, true},
		"another value":          {corev1.Toleration{Key: "dedicated", Value: "tests"}, false},
		"no value":               {corev1.Toleration{Key: "dedicated"}, false},
		"another effect":         {corev1.Toleration{Operator: "Exists", Effect: corev1.TaintEffectNoSchedule}, false},
		"the effect, for a time": {corev1.Toleration{Operator: "Exists", TolerationSeconds: ptr.To[int64](3)}, true},
	} {
		found := Toleration([]corev1.Toleration{{Key: "other", Operator: "Exists"}, test.toleration}, taint)
		if got := found != nil; got != test.want {
			t.Errorf("a toleration of %s: %v, want %v", name, got, test.want)
		}
	}
}

func FuzzDecodeDeviceTaints(f *testing.F) {
	f.Add(oneTaint)
	f.Add(`{"version":1,"taints":[{"device":"gpu/a","key":"k","value":"v","effect":"NoSchedule",` +
		`"timeAdded":"2026-01-02T03:04:05.6+01:00"}]}`)
	f.Add(`{"version":1,"taints":null}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, value string) {
		taints, err := DecodeDeviceTaints(value)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := EncodeDeviceTaints(taints)
		if err != nil {
			t.Fatalf("%+v are not written: %v", taints, err)
		}
		read, err := DecodeDeviceTaints(again)
		if err != nil || len(read) != len(taints) {
			t.Fatalf("%s is read as %+v, %v", again, read, err)
		}
		for _, taint := range taints {
			if !slices.ContainsFunc(read, func(other DeviceTaint) bool { return taint == other }) {
				t.Errorf("%+v is lost in %s", taint, again)
			}
		}
	})
}
