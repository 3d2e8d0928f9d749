// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// MaxLevels is the largest number of levels that the path of a device resource may have.
const MaxLevels = 16

// pathPrefix begins the path of every device resource.
const pathPrefix = types.DeviceGroupPrefix + "/"

// path is the parsed name of a device resource: levels and instances alternate, the resource comes last.
type path struct {
	levels    []string
	instances []string
	resource  string
}

// parsePath takes a device resource's name apart. Instances are placeholders when the name is a request.
func parsePath(name types.ResourceName) (path, error) {
	rest, ok := strings.CutPrefix(string(name), pathPrefix)
	if !ok {
		return path{}, fmt.Errorf("the name must begin with %q", pathPrefix)
	}
	segments := strings.Split(rest, "/")
	for _, segment := range segments {
		if segment == "" {
			return path{}, errors.New("the name has an empty segment")
		}
	}
	if len(segments)%2 == 0 {
		return path{}, fmt.Errorf("the name must alternate level and instance and end with a resource: %d segments after %q are an even number",
			len(segments), pathPrefix)
	}
	depth := len(segments) / 2
	if depth > MaxLevels {
		return path{}, fmt.Errorf("the name has %d levels, more than %d", depth, MaxLevels)
	}
	p := path{resource: segments[len(segments)-1]}
	for i := range depth {
		p.levels = append(p.levels, segments[2*i])
		p.instances = append(p.instances, segments[2*i+1])
	}
	return p, nil
}

// signature names the kind of instance that the first depth levels of the path lead to, whichever instances they are.
func (p path) signature(depth int) string {
	return strings.Join(p.levels[:depth], "/")
}

// resourceType names the kind of resource that the path leads to, whichever instances lie on the way.
func (p path) resourceType() string {
	return strings.Join(append(p.levels[:len(p.levels):len(p.levels)], p.resource), "/")
}
