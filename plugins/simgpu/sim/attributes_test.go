// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func TestTheModelOfTheFileIsAnAttributeOfEachGPU(t *testing.T) {
	config, err := parseConfig([]byte("count: 2\nmodel: Simulated H100\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := &Device{config: config}
	got, err := d.DeviceAttributes()
	if err != nil || len(got) != 2 {
		t.Fatalf("described are %v, %v", got, err)
	}
	for name, attributes := range got {
		if len(attributes) != 1 || attributes["productName"] != device.String("Simulated H100") {
			t.Errorf("%s has %v", name, attributes)
		}
	}
	d.config.Model = ""
	if got, err := d.DeviceAttributes(); len(got) > 0 || err != nil {
		t.Errorf("without a model described are %v, %v", got, err)
	}
}
