// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// release is how the chart is installed in renderings.
var release = common.ReleaseOptions{
	Name: "kubedevice", Namespace: "kubedevice-system", Revision: 1, IsInstall: true,
}

// object is an object of a rendering, by which its text is found.
type object struct{ template, kind, name, text string }

func (o object) String() string { return o.kind + " " + o.name }

// load reads the chart of a checkout.
func load(root string) (*chart.Chart, error) {
	return loader.LoadDir(filepath.Join(root, "deploy", "chart"))
}

// render returns the objects that the chart makes of values, written as YAML, on a cluster of that
// version. They are in the order of their templates.
func render(c *chart.Chart, version, values string) ([]object, error) {
	given, err := common.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	parsed, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, err
	}
	capabilities.KubeVersion = *parsed
	all, err := util.ToRenderValues(c, given, release, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(file) != ".yaml" {
			continue
		}
		for document := range strings.SplitSeq("\n"+files[file], "\n---\n") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			var head struct {
				Kind     string
				Metadata struct{ Namespace, Name string }
			}
			if err := yaml.Unmarshal([]byte(document), &head); err != nil {
				return nil, fmt.Errorf("%s: %w:\n%s", file, err, document)
			}
			objects = append(objects, object{
				path.Base(file), head.Kind, path.Join(head.Metadata.Namespace, head.Metadata.Name),
				strings.Trim(document, "\n") + "\n",
			})
		}
	}
	return objects, nil
}
