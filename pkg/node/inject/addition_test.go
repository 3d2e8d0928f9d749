// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// full has every field of an allocation, and of what is in it, set to something that counts.
func full() device.Allocation {
	return device.Allocation{
		Devices: []device.HostDevice{{HostPath: "/dev/link", ContainerPath: "/dev/x", Permissions: "r"}},
		Mounts: []device.HostMount{{
			HostPath: "/opt/lib", ContainerPath: "/l", Readonly: true, Propagation: device.Bidirectional,
			SELinuxRelabel: true,
		}},
		Envs:        map[string]string{"A": "1"},
		Annotations: map[string]string{"example.com/a": "1"},
		CDIDevices:  []string{"example.com/gpu=0"},
		Links:       []string{"/dev/link"},
	}
}

func merged(t *testing.T, allocation device.Allocation) (*runtimeapi.ContainerConfig, error) {
	t.Helper()
	delta, _, err := Merge(host, nil, []Addition{NewAddition("p", allocation)})
	return delta, err
}

// A new field of device.Allocation that is not copied or not merged fails here.
func TestNoFieldOfAnAllocationIsLost(t *testing.T) {
	whole, err := merged(t, full())
	if err != nil {
		t.Fatal(err)
	}
	// counts clears a field and demands that the container then gets something else, or an error.
	counts := func(allocation *device.Allocation, of reflect.Value, prefix string) {
		for i := range of.NumField() {
			name, field := prefix+of.Type().Field(i).Name, of.Field(i)
			if field.IsZero() {
				t.Errorf("full does not set %s: set it to something that counts", name)
				continue
			}
			value := reflect.New(field.Type()).Elem()
			value.Set(field)
			field.SetZero()
			if without, err := merged(t, *allocation); err == nil && proto.Equal(whole, without) {
				t.Errorf("%s makes no difference to the container: merge it", name)
			}
			field.Set(value)
		}
	}
	allocation := full()
	counts(&allocation, reflect.ValueOf(&allocation).Elem(), "Allocation.")
	counts(&allocation, reflect.ValueOf(&allocation.Devices[0]).Elem(), "HostDevice.")
	counts(&allocation, reflect.ValueOf(&allocation.Mounts[0]).Elem(), "HostMount.")
}

func TestAnAdditionSharesNothingWithThePlugin(t *testing.T) {
	allocation := full()
	addition := NewAddition("p", allocation)
	fields := reflect.ValueOf(allocation)
	for i := range fields.NumField() {
		switch field := fields.Field(i); field.Kind() {
		case reflect.Slice:
			field.Index(0).SetZero()
		case reflect.Map:
			field.SetMapIndex(field.MapKeys()[0], reflect.Value{})
		default:
			t.Errorf("what does it mean to share %s?", fields.Type().Field(i).Name)
		}
	}
	if diff := cmp.Diff(full(), addition.Allocation); diff != "" {
		t.Errorf("the plugin has changed it later (-before +after):\n%s", diff)
	}
}
