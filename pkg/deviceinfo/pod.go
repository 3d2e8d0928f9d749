// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// DecodePod reads all fields of a pod's annotation, regardless of their author: see PodRequest and
// PodAllocation. Absent lists are nil. An error is of type *Error.
func DecodePod(value string) (*types.PodInfo, error) { return decodePod(value, nil) }

func decodePod(value string, parts *Source) (*types.PodInfo, error) {
	pod := &types.PodInfo{}
	err := decodeParts(value, parts, func(r *reader, key string) error {
		r.mark(key)
		switch key {
		case "podname":
			return r.name(key, &pod.Name)
		case "nodename":
			return r.name(key, &pod.NodeName)
		case "requests":
			return r.requests(key, &pod.Requests)
		case "initcontainer":
			return r.containers(key, &pod.InitContainers)
		case "runningcontainer":
			return r.containers(key, &pod.RunningContainers)
		default:
			r.unknown(key, key, "requests", "initcontainer", "runningcontainer")
			return r.skip(key)
		}
	})
	if err != nil {
		return nil, err
	}
	return pod, nil
}

// containers reads containers by name.
func (r *reader) containers(path string, destination *map[string]types.ContainerInfo) error {
	containers := map[string]types.ContainerInfo{}
	err := r.object(path, func(name string) error {
		field := entryPath(path, name)
		r.mark(field)
		if err := checkName(field, name); err != nil {
			return err
		}
		info := types.ContainerInfo{}
		err := r.object(field, func(key string) error {
			path := fieldPath(field, key)
			r.mark(path)
			switch key {
			case "requests":
				return r.requests(path, &info.Requests)
			case "devrequests":
				return r.quantities(path, &info.DevRequests)
			case "allocatefrom":
				return r.locations(path, &info.AllocateFrom)
			case "scorer":
				return r.scorers(path, &info.Scorer)
			default:
				r.unknown(path, key, "requests", "scorer")
				return r.skip(path)
			}
		})
		containers[name] = info
		return err
	})
	if len(containers) > 0 {
		*destination = containers
	}
	return err
}

// EncodePod writes the annotation of a pod: the same text for the same content. A pod that
// DecodePod would reject is an error of type *Error.
func EncodePod(pod *types.PodInfo) (string, error) {
	if valid(pod) {
		written := make(podWriter, 0, 1024)
		if written.pod(pod); len(written) <= MaxBytes {
			return string(written), nil
		}
	}
	value, err := encode(pod)
	if err != nil {
		return "", err
	}
	if _, err := DecodePod(value); err != nil {
		return "", err
	}
	return value, nil
}

// encode writes JSON without the escapes that encoding/json adds for HTML: the policies refuse
// backslashes.
func encode(info any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(info); err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", Annotation, err)
	}
	return string(bytes.TrimSuffix(text.Bytes(), []byte("\n"))), nil
}

// CheckSize checks that a pod with these annotations has space for value as its
// KubeDevice/DeviceInfo, and for other annotations of at most this number of bytes. Kubernetes
// allows 256 KiB for the keys and values of all annotations of an object, but does not check those
// of a Binding: after a binding with more, no update of the pod succeeds.
func CheckSize(annotations map[string]string, value string, others int) error {
	total := len(Annotation) + len(value) + others
	for key, other := range annotations {
		if key != Annotation {
			total += len(key) + len(other)
		}
	}
	if total > MaxBytes {
		return &Error{
			Problem: fmt.Sprintf("with the allocation (%d bytes) the pod's annotations have %d bytes",
				len(value), total),
			Fix: fmt.Sprintf("Kubernetes allows %d: remove other annotations or request fewer devices", MaxBytes),
		}
	}
	return nil
}
