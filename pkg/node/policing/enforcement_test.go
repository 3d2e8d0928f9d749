// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policing

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
)

func TestTheNodePolicesDevicesWhoseProcessesTheDriverLists(t *testing.T) {
	e := NewEnforcement(nil, nil, End)
	if now, _ := e.ShareEnforcement(); now != nil {
		t.Errorf("before the first reading it is %+v", now)
	}
	start := time.Unix(1e9, 0)
	can := func(devices ...string) *deviceinfo.ShareEnforcement {
		of := &deviceinfo.ShareEnforcement{OnShareExceeded: "End", Devices: map[string][]deviceinfo.Enforcement{}}
		for _, d := range devices {
			of.Devices[d] = []deviceinfo.Enforcement{deviceinfo.Policed}
		}
		return of
	}
	both := []usage.Device{
		{Name: "resource/group/grp/0/gpu/a", Complete: true}, {Name: "resource/group/grp/0/gpu/b", Complete: true},
	}
	partly := []usage.Device{both[0], {Name: both[1].Name}}
	for _, reading := range []struct {
		what    string
		after   time.Duration
		devices []usage.Device
		want    *deviceinfo.ShareEnforcement
		changes bool
	}{
		{"nothing is read", 0, nil, can(), true},
		{"one device's processes are listed", time.Second, partly, can("gpu/a"), true},
		{"both devices' are", 2 * time.Second, both, can("gpu/a", "gpu/b"), true},
		{"one does not answer", time.Minute, both[:1], can("gpu/a", "gpu/b"), false},
		{"it still does not", 6 * time.Minute, both[:1], can("gpu/a"), true},
		{"it answers", 7 * time.Minute, both, can("gpu/a", "gpu/b"), true},
	} {
		_, changed := e.ShareEnforcement()
		e.note(&usage.Snapshot{Time: start.Add(reading.after), Devices: reading.devices}, nil)
		now, _ := e.ShareEnforcement()
		if diff := cmp.Diff(reading.want, now); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reading.what, diff)
		}
		select {
		case <-changed:
			if !reading.changes {
				t.Errorf("%s: it has changed", reading.what)
			}
		default:
			if reading.changes {
				t.Errorf("%s: the channel is open", reading.what)
			}
		}
	}
}

// limited are the devices whose shares a library limits.
type limited []string

func (l limited) Limited() (devices []string, changed <-chan struct{}) { return l, nil }

func TestTheNodeLimitsByALibrary(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e := NewEnforcement(nil, limited{"gpu/a"}, Ignore)
	e.Run(ctx)
	want := &deviceinfo.ShareEnforcement{OnShareExceeded: "Ignore", Devices: map[string][]deviceinfo.Enforcement{
		"gpu/a": {deviceinfo.Library},
	}}
	if now, _ := e.ShareEnforcement(); !cmp.Equal(want, now) {
		t.Errorf("where no use is read: %+v", now)
	}
	e.note(&usage.Snapshot{Time: time.Unix(1e9, 0), Devices: []usage.Device{
		{Name: "resource/group/grp/0/gpu/a", Complete: true}, {Name: "resource/group/grp/0/gpu/b", Complete: true},
	}}, []string{"gpu/a"})
	want.Devices["gpu/a"] = []deviceinfo.Enforcement{deviceinfo.Policed, deviceinfo.Library}
	want.Devices["gpu/b"] = []deviceinfo.Enforcement{deviceinfo.Policed}
	if now, _ := e.ShareEnforcement(); !cmp.Equal(want, now) {
		t.Errorf("where it is: %+v", now)
	}
}
