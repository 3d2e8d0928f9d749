// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"context"
	"runtime"
	"slices"
)

// versions is what versions.yaml has.
type versions struct {
	Client    string `json:"client"` // of kubectl device
	Platform  string `json:"platform"`
	APIServer string `json:"apiServer,omitempty"`
	// Nodes are the nodes with the same versions, the most first.
	Nodes    []nodeVersions    `json:"nodes"`
	Programs []programVersions `json:"programs"`
}

type nodeVersions struct {
	nodeSystem
	Count int    `json:"count"`
	First string `json:"first"` // the name of one
}

// nodeSystem is what a node's kubelet reports.
type nodeSystem struct {
	Kubelet string `json:"kubelet"`
	Runtime string `json:"containerRuntime"`
	Kernel  string `json:"kernel"`
	OS      string `json:"os"`
}

type programVersions struct {
	Pod       string   `json:"pod"`
	Container string   `json:"container"`
	Node      string   `json:"node"`
	Image     string   `json:"image"`
	ImageID   string   `json:"imageID,omitempty"`
	Versions  []string `json:"versions"` // in its metrics and logs
}

// writeVersions writes the versions that the other parts have shown.
func (c *collector) writeVersions(context.Context) error {
	all := versions{
		Client: c.Client, Platform: runtime.GOOS + "/" + runtime.GOARCH, APIServer: c.server,
		Nodes: []nodeVersions{}, Programs: []programVersions{},
	}
	for _, node := range c.nodes {
		info := node.Status.NodeInfo
		system := nodeSystem{info.KubeletVersion, info.ContainerRuntimeVersion, info.KernelVersion, info.OSImage}
		at := slices.IndexFunc(all.Nodes, func(n nodeVersions) bool { return n.nodeSystem == system })
		if at < 0 {
			at = len(all.Nodes)
			all.Nodes = append(all.Nodes, nodeVersions{nodeSystem: system, First: node.Name})
		}
		all.Nodes[at].Count++
	}
	slices.SortStableFunc(all.Nodes, func(a, b nodeVersions) int { return cmp.Compare(b.Count, a.Count) })
	for _, p := range c.programs {
		v := programVersions{
			Pod: p.pod.Name, Container: p.container, Node: p.pod.Spec.NodeName, Versions: p.versions,
		}
		for _, at := range p.pod.Spec.Containers {
			if at.Name == p.container {
				v.Image = at.Image
			}
		}
		for _, at := range p.pod.Status.ContainerStatuses {
			if at.Name == p.container {
				v.ImageID = at.ImageID
			}
		}
		if len(v.Versions) == 0 {
			v.Versions = []string{}
			c.miss("the version of "+p.String(), "neither its metrics nor the part of its log that was read has it")
		}
		all.Programs = append(all.Programs, v)
	}
	text, err := document(all)
	if err != nil {
		return err
	}
	// Also when the others have left little space: it is small.
	c.add("versions.yaml", "versions of kubectl device, the API server, nodes, and KubeDevice's programs", text)
	return nil
}
