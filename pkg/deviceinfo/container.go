// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// MaxContainerBytes is how many bytes a node may add to the annotations of one container in the
// runtime, keys and values together. The kubelet lists all containers of a node in one message of
// at most 16 MiB.
const MaxContainerBytes = 8 << 10

// MaxEncodedBytes is the largest value of EncodeContainer. The rest is for its key and signature,
// and for annotations of device plugins.
const MaxEncodedBytes = MaxContainerBytes - 1<<10

// devicePrefix begins the name of every device resource. A container's own part omits it.
const devicePrefix = types.DeviceGroupPrefix + "/"

// encodedContainer is the part of an allocation that a container's annotation in the runtime
// contains: its own devices, with the quantity of each of their resources. Several quantities
// belong to several requests.
type encodedContainer struct {
	Init    bool                      `json:"init,omitempty"`
	Devices map[string]map[string]any `json:"devices,omitempty"`
}

// EncodeContainer writes a container's own part of its pod's allocation, in the form of the
// container's annotation in the runtime: the same text for the same content. init says that it is
// an init container which ends before the others start.
//
//	{"init":true,"devices":{"gpugrp0/0/gpu/GPU-a":{"cards":1,"memory":[5,3]}}}
//
// It does not contain the names of requests, which users choose. Devices without a quantity, and
// names that belong to no device, are an error of type *Error. CheckContainers checks the length.
func EncodeContainer(info types.ContainerInfo, init bool) (string, error) {
	quantities := map[types.ResourceName][]int64{}
	for request, from := range info.AllocateFrom {
		if err := checkDevice(from, info.DevRequests[request]); err != nil {
			return "", err
		}
		quantities[from] = append(quantities[from], info.DevRequests[request])
	}
	c := encodedContainer{Init: init, Devices: map[string]map[string]any{}}
	for name, list := range quantities {
		device, kind := splitResource(name)
		if c.Devices[device] == nil {
			c.Devices[device] = map[string]any{}
		}
		slices.Sort(list)
		c.Devices[device][kind] = list
		if len(list) == 1 {
			c.Devices[device][kind] = list[0]
		}
	}
	return encode(c)
}

// LeastDeviceBytes returns the minimum number of bytes that EncodeContainer writes for another
// device with this resource: its path without the prefix, and the quantity. With it, the scheduler
// can refuse a container with too many devices before it chooses any.
func LeastDeviceBytes(name types.ResourceName) int {
	device, kind := splitResource(name)
	return len(device) + len(kind) + len(`"":{"":1}`)
}

// checkDevice checks an entry of a container's own part.
func checkDevice(name types.ResourceName, quantity int64) error {
	field := entryPath("devices", string(name))
	switch {
	case !resource.IsGroupResourceName(name):
		return &Error{Field: field, Problem: "it is no device resource", Fix: "begin its name with " + devicePrefix}
	case quantity <= 0:
		return &Error{Field: field, Problem: "it has no quantity", Fix: "write a whole number from 1"}
	}
	// With a number before it, as in the name of a second request.
	return checkResource(field, string(numbered(math.MaxInt16, name)))
}

// splitResource returns the path of a device without the prefix, which is empty for the node
// itself, and the resource.
func splitResource(name types.ResourceName) (device, kind string) {
	path := strings.TrimPrefix(string(name), devicePrefix)
	slash := strings.LastIndexByte(path, '/')
	return path[:max(0, slash)], path[slash+1:]
}

// joinResource undoes splitResource.
func joinResource(device, kind string) types.ResourceName {
	if device == "" {
		return types.ResourceName(devicePrefix + kind)
	}
	return types.ResourceName(devicePrefix + device + "/" + kind)
}

// numbered returns the name of the request of number i for a resource. The first has the name of
// the resource.
func numbered(i int, name types.ResourceName) types.ResourceName {
	if i == 0 {
		return name
	}
	return types.ResourceName(strconv.Itoa(i)) + "/" + name
}

// DecodeContainer reads the text of EncodeContainer. Requests get new names: the name of the
// resource, and a number before it for further requests of the same resource. An error is of type
// *Error.
func DecodeContainer(value string) (info types.ContainerInfo, init bool, err error) {
	info = types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
	err = decode(value, func(r *reader, key string) error {
		switch key {
		case "init":
			return r.flag(key, &init)
		case "devices":
			return r.object(key, func(device string) error {
				return r.object(entryPath(key, device), func(kind string) error {
					return r.deviceQuantities(&info, joinResource(device, kind))
				})
			})
		default:
			return r.skip(key)
		}
	})
	if err != nil {
		return types.ContainerInfo{}, false, err
	}
	return info, init, nil
}

// deviceQuantities reads the quantities of a resource: a number or a list.
func (r *reader) deviceQuantities(info *types.ContainerInfo, name types.ResourceName) error {
	field := entryPath("devices", string(name))
	if _, twice := info.AllocateFrom[name]; twice {
		return &Error{Field: field, Problem: "the resource occurs twice", Fix: "keep one of them"}
	}
	token, err := r.token(field)
	if err != nil {
		return err
	}
	add := func(i int, token json.Token) error {
		quantity, err := wholeNumber(field, token, math.MaxInt64)
		if err == nil && i == math.MaxInt16 {
			err = &Error{Field: field, Problem: "the list is too long", Fix: "request the resource less often"}
		}
		if err == nil {
			err = checkDevice(name, quantity)
		}
		if err != nil {
			return err
		}
		request := numbered(i, name)
		info.DevRequests[request], info.AllocateFrom[request] = quantity, name
		return nil
	}
	if token != json.Delim('[') {
		return add(0, token)
	}
	for i := 0; r.dec.More(); i++ {
		token, err := r.token(field)
		if err != nil {
			return err
		}
		if err := add(i, token); err != nil {
			return err
		}
	}
	_, err = r.token(field)
	return err
}

// flag reads true or false.
func (r *reader) flag(path string, destination *bool) error {
	token, err := r.token(path)
	if err != nil {
		return err
	}
	flag, ok := token.(bool)
	if !ok {
		return &Error{Field: path, Problem: "it is " + describe(token), Fix: "write true or false"}
	}
	*destination = flag
	return nil
}

// CheckContainers checks that each container's own part of the allocation fits into its annotation
// in the runtime. The error names the container, its size and the limit, both in bytes.
func CheckContainers(pod *types.PodInfo) error {
	check := func(list string, containers map[string]types.ContainerInfo, init bool) error {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			if err := checkContainer(entryPath(list, name), containers[name], init); err != nil {
				return err
			}
		}
		return nil
	}
	if err := check("initcontainer", pod.InitContainers, true); err != nil {
		return err
	}
	return check("runningcontainer", pod.RunningContainers, false)
}

// FitsContainer reports whether this many device resources fit into a container's annotation for
// certain, if no name is longer than so many bytes: a quantity has at most 19 digits, and the text
// around it and the name has fewer than 16 bytes.
func FitsContainer(resources, longest int) bool {
	return 32+resources*(longest+19+16) <= MaxEncodedBytes
}

func checkContainer(field string, info types.ContainerInfo, init bool) error {
	longest := 0
	for _, from := range info.AllocateFrom {
		longest = max(longest, len(from))
	}
	if FitsContainer(len(info.AllocateFrom), longest) {
		return nil
	}
	value, err := EncodeContainer(info, init)
	if err != nil {
		return err
	}
	if len(value) > MaxEncodedBytes {
		return &Error{
			Field:   field,
			Problem: fmt.Sprintf("the container's devices take %d bytes in the container runtime", len(value)),
			Fix: fmt.Sprintf("at most %d are allowed: request fewer devices in one container",
				MaxEncodedBytes),
		}
	}
	return nil
}
