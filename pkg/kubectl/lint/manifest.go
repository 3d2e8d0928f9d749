// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// template is a pod, or what an object makes pods of.
type template struct {
	object         string     // kind and name of the object that it is in
	path           string     // of the template in an object of a kind that is not Kubernetes' own
	metadata, spec *yaml.Node // nil if it has none
	outer          *yaml.Node // metadata of the object, for the first template of one that is no pod
}

// templates returns the pods and pod templates of a file, those before an error too.
func templates(content string) (found []template, err error) {
	documents := yaml.NewDecoder(strings.NewReader(content))
	for {
		var document yaml.Node
		switch err := documents.Decode(&document); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return found, err
		}
		for _, root := range document.Content {
			kind := textOf(root, "kind")
			items := contentOf(root, "items")
			if !strings.HasSuffix(kind, "List") || len(items) == 0 {
				found = append(found, inObject(resolve(root), "")...)
				continue
			}
			for _, item := range items {
				found = append(found, inObject(resolve(item), strings.TrimSuffix(kind, "List"))...)
			}
		}
	}
}

// inObject returns the templates of an object. The items of some lists leave out their kind.
func inObject(object *yaml.Node, kind string) []template {
	if written := textOf(object, "kind"); written != "" {
		kind = written
	}
	metadata := get(object, "metadata")
	name := textOf(metadata, "name")
	if name == "" {
		name = textOf(metadata, "generateName") + "*"
	}
	t := template{object: kind + " " + name}
	if kind == "Pod" {
		t.metadata, t.spec = metadata, get(object, "spec")
		return []template{t}
	}
	s := search{object: t, visited: map[*yaml.Node]bool{}}
	s.visit(object, "")
	if len(s.found) > 0 {
		s.found[0].outer = metadata
	}
	return s.found
}

// ownPaths are where kinds of Kubernetes have their pod template. Others have it anywhere: a
// PyTorchJob at spec.pytorchReplicaSpecs.Worker.template, a JobSet at
// spec.replicatedJobs[0].template.spec.template.
var ownPaths = map[string]bool{"spec.template": true, "spec.jobTemplate.spec.template": true, "template": true}

// search collects the templates of an object: all mappings in it that have a list of containers in
// their spec.
type search struct {
	object  template
	visited map[*yaml.Node]bool // aliases may form a cycle, and are searched once
	found   []template
}

// visit searches a node, which is at a path of the object.
func (s *search) visit(node *yaml.Node, path string) {
	if node = resolve(node); node == nil || s.visited[node] {
		return
	}
	s.visited[node] = true
	if spec := get(node, "spec"); path != "" && len(contentOf(spec, "containers")) > 0 {
		t := s.object
		t.metadata, t.spec = get(node, "metadata"), spec
		if !ownPaths[path] {
			t.path = path
		}
		s.found = append(s.found, t)
		return
	}
	if node.Kind == yaml.SequenceNode {
		for i, item := range node.Content {
			s.visit(item, fmt.Sprintf("%s[%d]", path, i))
		}
		return
	}
	for _, e := range entries(node) {
		s.visit(e.value, strings.TrimPrefix(path+"."+e.key.Value, "."))
	}
}

// resolve returns what an alias stands for.
func resolve(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// entry is an entry of a mapping.
type entry struct{ key, value *yaml.Node }

// entries returns the entries of a mapping, its own before those that it merges. Of several with
// one key only the first counts.
func entries(mapping *yaml.Node) []entry {
	var found []entry
	keys := map[string]bool{}
	merged := map[*yaml.Node]bool{}
	var add func(*yaml.Node)
	add = func(mapping *yaml.Node) {
		if mapping = resolve(mapping); mapping == nil || merged[mapping] {
			return
		}
		merged[mapping] = true
		if mapping.Kind == yaml.SequenceNode { // several to merge
			for _, one := range mapping.Content {
				add(one)
			}
		}
		if mapping.Kind != yaml.MappingNode {
			return
		}
		var further []*yaml.Node
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			key, value := resolve(mapping.Content[i]), resolve(mapping.Content[i+1])
			switch {
			case key.Kind != yaml.ScalarNode:
			case key.Tag == "!!merge":
				further = append(further, value)
			case !keys[key.Value]:
				keys[key.Value] = true
				found = append(found, entry{key, value})
			}
		}
		for _, mapping := range further {
			add(mapping)
		}
	}
	if mapping = resolve(mapping); mapping != nil && mapping.Kind == yaml.MappingNode {
		add(mapping)
	}
	return found
}

// get returns what is at a path of keys, or nil.
func get(node *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		var next *yaml.Node
		for _, e := range entries(node) {
			if e.key.Value == name {
				next = e.value
			}
		}
		node = next
	}
	return node
}

// textOf returns the scalar at a path of keys, or "".
func textOf(node *yaml.Node, path ...string) string {
	if at := get(node, path...); at != nil && at.Kind == yaml.ScalarNode && at.Tag != "!!null" {
		return at.Value
	}
	return ""
}

// contentOf returns the items of the sequence at a path of keys.
func contentOf(node *yaml.Node, path ...string) []*yaml.Node {
	if at := get(node, path...); at != nil && at.Kind == yaml.SequenceNode {
		return at.Content
	}
	return nil
}

// unreadable says at which line a file is no YAML.
func unreadable(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	return fmt.Errorf("%s:%d: it is neither YAML nor JSON: %s", file, line, text)
}
