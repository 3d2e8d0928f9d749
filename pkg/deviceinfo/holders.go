// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// HoldersAnnotation is the key of the annotation in which a node reports holders that only the node
// knows: pods to which the kubelet allocated devices before the scheduler did, pods with grants
// from the time before seals, and pods with a seal of an unknown key. A node without such pods has
// no such annotation. It applies to pods that are bound to the node.
const HoldersAnnotation = "KubeDevice/Holders"

// MaxHoldersBytes is the largest value of [HoldersAnnotation]: 110 pods with 8 devices each fit.
const MaxHoldersBytes = 128 << 10

// Holder is the devices that one pod holds on the reporting node.
type Holder struct {
	// UID identifies the pod; namespace and name are for people.
	UID       apitypes.UID `json:"uid"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	// Containers are the device resources that each of the pod's containers was granted, init
	// containers and sidecars included, with quantities in the resource's own unit. The quantity of
	// an enum resource is a mask. The names begin with resource/group/.
	Containers map[string]types.ResourceList `json:"containers"`
	// Generation is the generation of the pod's allocation, if devices of the pod were replaced.
	// The report has priority over a seal of an older generation.
	Generation int64 `json:"generation,omitempty"`
}

// HolderOf returns the pod with the allocation of its containers. It does not change the
// allocation.
func HolderOf(uid apitypes.UID, namespace, name string, allocation *types.PodInfo) Holder {
	holder := Holder{UID: uid, Namespace: namespace, Name: name, Containers: map[string]types.ResourceList{}}
	for _, containers := range []map[string]types.ContainerInfo{
		allocation.InitContainers, allocation.RunningContainers,
	} {
		for container, info := range containers {
			granted := types.ResourceList{}
			for request, from := range info.AllocateFrom {
				if resource.IsEnumResource(from) {
					granted[from] |= info.DevRequests[request]
				} else {
					granted[from] += info.DevRequests[request]
				}
			}
			if len(granted) > 0 {
				holder.Containers[container] = granted
			}
		}
	}
	return holder
}

// EncodeHolders writes the annotation KubeDevice/Holders: the same text for the same holders in any
// order, and an empty text for none. A holder that DecodeHolders would reject is an error of type
// *Error.
func EncodeHolders(holders []Holder) (string, error) {
	if len(holders) == 0 {
		return "", nil
	}
	holders = slices.Clone(holders)
	slices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	value, err := encode(holders)
	if err != nil {
		return "", err
	}
	if _, err := DecodeHolders(value); err != nil {
		return "", err
	}
	return value, nil
}

// DecodeHolders reads the annotation KubeDevice/Holders, as strictly as DecodePod reads a pod's. An
// empty value has no holders. An error is of type *Error.
func DecodeHolders(value string) ([]Holder, error) {
	if value == "" {
		return nil, nil
	}
	holders, err := decodeHolders(value)
	if e := (*Error)(nil); errors.As(err, &e) {
		e.key = HoldersAnnotation
	}
	if err != nil {
		return nil, err
	}
	return holders, nil
}

func decodeHolders(value string) ([]Holder, error) {
	r, err := newReader(value, MaxHoldersBytes)
	if err != nil {
		return nil, err
	}
	token, err := r.token("")
	if err != nil {
		return nil, err
	}
	if token != json.Delim('[') {
		return nil, &Error{Problem: "the value is " + describe(token), Fix: "write a list"}
	}
	var holders []Holder
	seen := map[apitypes.UID]bool{}
	for r.dec.More() {
		path := fmt.Sprintf("[%d]", len(holders))
		holder, err := r.holder(path)
		if err != nil {
			return nil, err
		}
		if seen[holder.UID] {
			return nil, &Error{
				Field: fieldPath(path, "uid"), Problem: "the pod " + quote(string(holder.UID)) + " is listed twice",
				Fix: "list it once",
			}
		}
		seen[holder.UID] = true
		holders = append(holders, holder)
	}
	_, err = r.token("")
	return holders, err
}

// holder reads one pod, all of whose fields are required.
func (r *reader) holder(path string) (Holder, error) {
	var holder Holder
	err := r.object(path, func(key string) error {
		field := fieldPath(path, key)
		switch key {
		case "uid":
			return r.name(field, (*string)(&holder.UID))
		case "namespace":
			return r.name(field, &holder.Namespace)
		case "name":
			return r.name(field, &holder.Name)
		case "generation":
			token, err := r.token(field)
			if err == nil {
				holder.Generation, err = wholeNumber(field, token, math.MaxInt64)
			}
			return err
		case "containers":
			holder.Containers = map[string]types.ResourceList{}
			return r.object(field, func(container string) error {
				return r.granted(field, container, holder.Containers)
			})
		default:
			return r.skip(field)
		}
	})
	if err != nil {
		return Holder{}, err
	}
	for _, field := range []struct {
		name   string
		absent bool
	}{
		{"uid", holder.UID == ""}, {"namespace", holder.Namespace == ""}, {"name", holder.Name == ""},
		{"containers", len(holder.Containers) == 0},
	} {
		if field.absent {
			return Holder{}, &Error{
				Field: fieldPath(path, field.name), Problem: "it is absent or empty", Fix: "write it",
			}
		}
	}
	return holder, nil
}

// granted reads the grants of one container into containers.
func (r *reader) granted(path, container string, containers map[string]types.ResourceList) error {
	field := entryPath(path, container)
	if err := checkName(field, container); err != nil {
		return err
	}
	var granted types.ResourceList
	if err := r.quantities(field, &granted); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(granted)) {
		if !resource.IsGroupResourceName(name) {
			return &Error{
				Field: entryPath(field, string(name)), Problem: "it is no resource of a device",
				Fix: "use a name that begins with " + types.DeviceGroupPrefix + "/",
			}
		}
	}
	containers[container] = granted
	return nil
}
