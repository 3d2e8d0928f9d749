// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestResourceNamesAreDistinguished(t *testing.T) {
	tests := map[types.ResourceName]struct{ group, enum bool }{
		"":                           {},
		"cpu":                        {},
		"nvidia.com/gpu":             {},
		"resource/group/gpu/0/cards": {group: true},
		"resource/group/gpugrp0/1/gpu/GPU-7f3a/memory": {group: true},
		"resource/group/gpu/0/enumType":                {group: true, enum: true},
		"resource/group/gpu/0/ENUM":                    {group: true, enum: true},
		"resource/group/gpu/0/Enumerated":              {group: true, enum: true},
		"resource/group/enumType/0/cards":              {group: true},
		"resource/group/gpu/0/anenum":                  {group: true},
		"resource/group/gpu/0/enu":                     {group: true},
		"resource/group/gpu/0/enumType/":               {group: true},
		"enumKind":                                     {enum: true},
		"example.com/enumKind":                         {enum: true},
		"a/resource/group/gpu/0/cards":                 {},
	}
	for name, want := range tests {
		t.Run(string(name), func(t *testing.T) {
			if got := resource.IsGroupResourceName(name); got != want.group {
				t.Errorf("IsGroupResourceName = %v, want %v", got, want.group)
			}
			if got := resource.PrecheckedResource(name); got == want.group {
				t.Errorf("PrecheckedResource = %v, want %v", got, !want.group)
			}
			if got := resource.IsEnumResource(name); got != want.enum {
				t.Errorf("IsEnumResource = %v, want %v", got, want.enum)
			}
		})
	}
}

func TestAnInsufficientResourceIsAReasonWithQuantities(t *testing.T) {
	err := resource.NewInsufficientResourceError("nvidia.com/gpu", 3, 2, 4)

	var reason devicescheduler.PredicateFailureReason = err
	if got, want := reason.GetReason(), "Insufficient nvidia.com/gpu"; got != want {
		t.Errorf("GetReason() = %q, want %q", got, want)
	}
	name, requested, used, capacity := reason.GetInfo()
	if name != "nvidia.com/gpu" || requested != 3 || used != 2 || capacity != 4 {
		t.Errorf("GetInfo() = %q, %d, %d, %d", name, requested, used, capacity)
	}
	if got, want := err.Error(), "Insufficient nvidia.com/gpu: requested 3, used 2, capacity 4"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestAddGroupResourcePutsTheGroupPrefixInFront(t *testing.T) {
	list := types.ResourceList{}
	resource.AddGroupResource(list, "gpu/0/cards", 1)
	if got := list["resource/group/gpu/0/cards"]; got != 1 || len(list) != 1 {
		t.Errorf("list = %v", list)
	}
}
