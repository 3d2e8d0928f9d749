// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Error is a request that no node can serve, not even one that has every device.
type Error struct {
	// Field is the path of the request, as in [deviceinfo.Error].
	Field string
	// Request is the request as it is written.
	Request types.ResourceName
	// Problem says what is wrong, and what to write.
	Problem error
}

// Error returns annotation, field and problem.
func (e *Error) Error() string {
	return fmt.Sprintf("annotation %s: %s: %v", deviceinfo.Annotation, e.Field, e.Problem)
}

// Unwrap returns the problem.
func (e *Error) Unwrap() error { return e.Problem }

// Errors returns the requests of a pod that no node can serve: those of the pod as a whole, of init
// containers and of other containers, by the names of containers and requests. The scheduler
// refuses the pod, and kubectl device lint shows them.
func Errors(written *types.PodInfo) []Error {
	c := checker{excluded: map[device]types.ResourceName{}}
	for _, exclusion := range Exclusions(written) {
		c.excluded[device{exclusion.Resource, exclusion.ID}] = exclusion.Request
	}
	c.check("", "", types.ContainerInfo{Requests: written.Requests})
	for _, name := range slices.Sorted(maps.Keys(written.InitContainers)) {
		c.check("initcontainer", name, written.InitContainers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(written.RunningContainers)) {
		c.check("runningcontainer", name, written.RunningContainers[name])
	}
	return c.found
}

// checker collects the errors of a pod.
type checker struct {
	excluded map[device]types.ResourceName // the request that excludes a device
	found    []Error
}

// device is a device of a kubelet device plugin.
type device struct {
	resource types.ResourceName
	id       string
}

// check checks the requests of a container, or of the pod as a whole.
func (c *checker) check(list, container string, info types.ContainerInfo) {
	for _, request := range slices.Sorted(maps.Keys(info.Requests)) {
		err := c.checkRequest(request, info)
		if err == nil && container == "" {
			err = checkWhole(request, info.Requests[request])
		}
		if err != nil {
			c.found = append(c.found, Error{deviceinfo.RequestField(list, container, request), request, err})
		}
	}
}

func (c *checker) checkRequest(request types.ResourceName, info types.ContainerInfo) error {
	quantity := info.Requests[request]
	if err := checkName(request); err != nil {
		return err
	}
	selected, ok, err := kubeletdevice.ParseSelection(request, quantity)
	switch {
	case err != nil:
		return err
	case ok && selected.Excludes():
		return nil
	case ok:
		if by, both := c.excluded[device{selected.Resource, selected.ID}]; both {
			return fmt.Errorf("the pod requests and excludes the device %s of %s: remove this or %s", selected.ID,
				selected.Resource, by)
		}
	case isMillionths(request) && quantity > millionths:
		return fmt.Errorf("%s is %d: a GPU's memory has %d millionths, request as many at most", request, quantity,
			millionths)
	case isTopology(request) && quantity > 1:
		return fmt.Errorf("%s is %d: use 1 to require the best topology, 0 for GPUs anywhere, or leave it out", request,
			quantity)
	case quantity == 0 && (IsPath(request) || IsCount(request)):
		return fmt.Errorf("%s is 0: write how much of it, or remove it", request)
	}
	return checkScorer(request, info.Scorer)
}

// checkWhole returns an error for a request for devices that is written for the pod as a whole. A
// quantity of 0 excludes a device. What may be an option of a device scheduler is a mistake only.
func checkWhole(request types.ResourceName, quantity int64) error {
	if quantity > 0 && (IsPath(request) || IsCount(request) && !mayBeOption(request)) {
		return errors.New(noneForWhole)
	}
	return nil
}

// noneForWhole says what is wrong with a request for devices for the pod as a whole.
const noneForWhole = "a pod as a whole gets no devices: write the request under one of its containers"

// isTopology reports whether a request is the published option, whose values are 0 and 1.
func isTopology(request types.ResourceName) bool {
	short := strings.TrimPrefix(string(request), types.DeviceGroupPrefix+"/")
	return slices.Contains(Options(), types.ResourceName(short))
}

// millionths are those of the memory of a device.
const millionths = 1_000_000

// isMillionths reports whether a request is for millionths of a device's memory.
func isMillionths(request types.ResourceName) bool {
	path, err := resource.ParseRequest(request)
	return err == nil && path.Depth() > 0 && path.Resource() == memoryMillionths
}

// checkScorer returns an error for an unknown scorer of a request.
func checkScorer(request types.ResourceName, scorers types.ResourceScorer) error {
	full := resource.WithPrefix(request)
	for _, scored := range []types.ResourceName{full, request} {
		if scorer, ok := scorers[scored]; ok {
			if err := grouptree.CheckScorer(full, scorer); err != nil {
				return err
			}
		}
	}
	return nil
}
