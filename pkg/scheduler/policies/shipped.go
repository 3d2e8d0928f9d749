// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/deploy"
)

// guard is one admission policy with its binding, which has the same name.
type guard struct {
	policy  *admissionv1.ValidatingAdmissionPolicy
	binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// shipped returns by name the policies of deploy/policies that this program was built with.
func shipped() ([]guard, error) { return read(deploy.Policies) }

// read returns the policies in all YAML files of files, by name. A file may have any number of
// them. The error names documents that are no policies, and a policy that lacks its binding.
func read(files fs.FS) ([]guard, error) {
	byName := map[string]guard{}
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		if err := addFile(byName, text); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read admission policies: %w", err)
	}
	var guards []guard
	for name, g := range byName {
		if g.policy == nil || g.binding == nil {
			return nil, fmt.Errorf("read admission policies: %q lacks its policy or its binding", name)
		}
		guards = append(guards, g)
	}
	slices.SortFunc(guards, func(a, b guard) int { return cmp.Compare(a.policy.Name, b.policy.Name) })
	return guards, nil
}

// addFile adds the documents of one file.
func addFile(byName map[string]guard, text []byte) error {
	documents := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := addDocument(byName, document); err != nil {
			return err
		}
	}
}

func addDocument(byName map[string]guard, document []byte) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(document, &meta); err != nil {
		return err
	}
	switch meta.Kind {
	case "ValidatingAdmissionPolicy":
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		if err := yaml.UnmarshalStrict(document, policy); err != nil {
			return err
		}
		g := byName[policy.Name]
		g.policy = policy
		byName[policy.Name] = g
	case "ValidatingAdmissionPolicyBinding":
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
		if err := yaml.UnmarshalStrict(document, binding); err != nil {
			return err
		}
		g := byName[binding.Name]
		g.binding = binding
		byName[binding.Name] = g
	case "": // only comments
	default:
		return fmt.Errorf("%s is no admission policy", meta.Kind)
	}
	return nil
}
