// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxReasonsNamed is how many reasons a text names. An event has 1024 bytes for everything.
const maxReasonsNamed = 3

// UnhealthyText says that a node has unhealthy devices like those that a pod requests, and why they
// are unhealthy, such that it follows on a number of nodes; "" if there are none. Whether the pod
// would fit with them is not known. Nodes with as many for the same reasons have the same text.
func (c *Cache) UnhealthyText(ctx context.Context, source *v1.Node, request *request.Request) string {
	value := source.Annotations[deviceinfo.UnhealthyAnnotation]
	if value == "" {
		return ""
	}
	list, err := deviceinfo.DecodeUnhealthy(value)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Why devices of a node are unhealthy is not known", logkey.Node,
			klog.KObj(source), logkey.Reason, err.Error())
		return ""
	}
	var paths []resource.Path
	var reasons []string
	for _, d := range list {
		// With a resource, it is the name of one: those of kubelet device plugins have just this.
		name := sdk.ResourceName(sdk.DeviceGroupPrefix + "/" + d.Device + "/" + kubeletdevice.Quantity)
		path, err := resource.ParsePath(name)
		if err != nil || !c.schedulers.RequestsLike(request, name) {
			continue
		}
		paths = append(paths, path)
		reasons = append(reasons, d.Reason)
	}
	if len(paths) == 0 {
		return ""
	}
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	named := strings.Join(reasons[:min(len(reasons), maxReasonsNamed)], ", ")
	if more := len(reasons) - maxReasonsNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("have %d unhealthy %s (%s)", len(paths), c.nounOf(paths), named)
}

// nounOf returns the word for these devices, of which there is at least one.
func (c *Cache) nounOf(paths []resource.Path) string {
	first := paths[0]
	isOther := func(path resource.Path) bool { return path.DeviceLevel() != first.DeviceLevel() }
	noun, known := c.schedulers.DisplayNames().Levels[first.DeviceLevel()]
	hosted, isHosted := kubeletdevice.Parse(first.Name())
	switch {
	case slices.ContainsFunc(paths, isOther) || !known && !isHosted:
		noun.One, noun.Many = "device", "devices"
	case isHosted:
		return string(hosted.Resource)
	}
	if len(paths) == 1 {
		return noun.One
	}
	return noun.Many
}
