// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
)

// content is the part of a policy that decides. It excludes the texts of refusals, the order of
// conditions, and whether a default was written or filled in.
type content struct {
	FailurePolicy    admissionv1.FailurePolicyType
	ParamKind        *admissionv1.ParamKind
	MatchConstraints *admissionv1.MatchResources
	MatchConditions  []admissionv1.MatchCondition
	Variables        []admissionv1.Variable
	Validations      []string // expressions
}

func contentOf(policy *admissionv1.ValidatingAdmissionPolicy) content {
	policy = policy.DeepCopy()
	v1.SetObjectDefaults_ValidatingAdmissionPolicy(policy)
	spec := policy.Spec
	c := content{
		FailurePolicy:    *spec.FailurePolicy,
		ParamKind:        spec.ParamKind,
		MatchConstraints: normalized(spec.MatchConstraints),
		MatchConditions:  spec.MatchConditions,
		Variables:        spec.Variables,
	}
	slices.SortFunc(c.MatchConditions, func(a, b admissionv1.MatchCondition) int { return cmp.Compare(a.Name, b.Name) })
	for _, validation := range spec.Validations {
		c.Validations = append(c.Validations, validation.Expression)
	}
	slices.Sort(c.Validations)
	return c
}

// normalized sorts lists without an order and removes selectors that select all. It changes match.
func normalized(match *admissionv1.MatchResources) *admissionv1.MatchResources {
	if match == nil {
		return nil
	}
	for _, selector := range []**metav1.LabelSelector{&match.NamespaceSelector, &match.ObjectSelector} {
		if *selector != nil && len((*selector).MatchLabels)+len((*selector).MatchExpressions) == 0 {
			*selector = nil // it selects all
		}
	}
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules} {
		for i := range rules {
			slices.Sort(rules[i].Operations)
			for _, names := range [][]string{
				rules[i].APIGroups, rules[i].APIVersions, rules[i].Resources, rules[i].ResourceNames,
			} {
				slices.Sort(names)
			}
		}
	}
	return match
}

// digest identifies the content.
func (c content) digest() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // it has strings, lists and structs of strings only
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// releases has a line with the name and the digest for every content that a policy ever had.
//
//go:embed releases.txt
var releases string

// isReleased reports whether a release had this content for the policy of that name.
func (c content) isReleased(name string) bool {
	return slices.Contains(strings.Split(releases, "\n"), name+" "+c.digest())
}
