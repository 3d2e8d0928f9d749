// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

const driver = "gpu.example.com"

// devices returns six devices of which each has a UUID of its own. They are of two colors; a third
// of them is large.
func devices() []resourceapi.Device {
	var all []resourceapi.Device
	for i := range 6 {
		memory := "40Gi"
		if i%3 == 0 {
			memory = "80Gi"
		}
		all = append(all, resourceapi.Device{
			Name: fmt.Sprint(i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"uuid":                 {StringValue: ptr.To(fmt.Sprint(i))},
				"color":                {StringValue: ptr.To([]string{"red", "green"}[i%2])},
				driver + "/shade":      {StringValue: ptr.To([]string{"dark", "light"}[i%2])},
				"other.example.com/is": {BoolValue: ptr.To(i == 5)},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"memory": {Value: resource.MustParse(memory)},
			},
		})
	}
	return all
}

func TestAnExpressionIsEvaluatedOnceForTheValuesThatItReads(t *testing.T) {
	for expression, test := range map[string]struct {
		want        string // a digit for each device
		evaluations int
	}{
		`device.driver == "gpu.example.com"`:                                     {"111111", 1},
		`device.attributes["gpu.example.com"].color == "red"`:                    {"101010", 2},
		`device.attributes["gpu.example.com"]["color"] == "red"`:                 {"101010", 2},
		`device.attributes["gpu.example.com"].shade == "dark"`:                   {"101010", 2},
		`has(device.attributes["other.example.com"].is)`:                         {"111111", 2},
		`device.attributes["none.example.com"].?x.orValue("") == ""`:             {"111111", 1},
		`device.capacity["gpu.example.com"].memory == quantity("80Gi")`:          {"100100", 2},
		`device.attributes["gpu.example.com"].uuid == "2"`:                       {"001000", 6},
		`"color" in device.attributes["gpu.example.com"]`:                        {"111111", 6}, // all of the domain
		`cel.bind(o, device.attributes["other.example.com"], o.is)`:              {"000001", 2},
		`["other"].exists(d, device.attributes[d + ".example.com"].is)`:          {"000001", 6}, // any domain
		`[device].exists(d, d.driver == "gpu.example.com")`:                      {"111111", 6}, // all of the device
		`["red"].all(c, device.attributes["gpu.example.com"].color.contains(c))`: {"101010", 2},
	} {
		compiled, err := NewCache(cel.Features{}).Compile(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		for range 2 {
			got := ""
			for _, device := range devices() {
				matches, err := compiled.Matches(t.Context(), driver, &device)
				switch {
				case err != nil:
					t.Errorf("%s: %v", expression, err)
				case matches:
					got += "1"
				default:
					got += "0"
				}
			}
			if got != test.want {
				t.Errorf("%s matches %s, want %s", expression, got, test.want)
			}
		}
		if compiled.evaluations != test.evaluations {
			t.Errorf("%s was evaluated %d times, want %d", expression, compiled.evaluations, test.evaluations)
		}
	}
}

func TestAFailureIsNotRemembered(t *testing.T) {
	compiled, err := NewCache(cel.Features{}).Compile(`device.attributes["none.example.com"].x`)
	if err != nil {
		t.Fatal(err)
	}
	device := devices()[0]
	for range 2 {
		if _, err := compiled.Matches(t.Context(), driver, &device); err == nil {
			t.Error("no error for an attribute that the device lacks")
		}
	}
	if len(compiled.known) > 0 {
		t.Errorf("it is remembered: %v", compiled.known)
	}
}

func TestAnExpressionThatIsNotOneIsAnError(t *testing.T) {
	if _, err := NewCache(cel.Features{}).Compile(`device.driver`); err == nil {
		t.Error("a text was accepted as a condition")
	}
}
