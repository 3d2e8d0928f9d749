// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	v1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
)

// Reason classifies a problem of an installed policy. It is the label of a metric.
type Reason string

// The reasons.
const (
	// Missing: the policy is not installed.
	Missing Reason = "missing"
	// Unbound: the binding is not installed, or binds another policy.
	Unbound Reason = "unbound"
	// Outdated: the policy belongs to another release.
	Outdated Reason = "outdated"
	// NotDenying: the binding reports requests that it should refuse.
	NotDenying Reason = "not_denying"
	// Narrowed: the binding excludes requests.
	Narrowed Reason = "narrowed"
	// Parameters: the policy or its binding depends on parameters.
	Parameters Reason = "parameters"
	// FailurePolicy: requests pass if the policy fails on them.
	FailurePolicy Reason = "failure_policy"
	// MatchConstraints: the policy is for other requests.
	MatchConstraints Reason = "match_constraints"
	// MatchConditions: the policy has other conditions for matching a request.
	MatchConditions Reason = "match_conditions"
	// Variables: the variables of the expressions differ.
	Variables Reason = "variables"
	// Validations: the policy lacks a validation.
	Validations Reason = "validations"
	// Unknown: the scheduler may not read the policy.
	Unknown Reason = "unknown"
)

// problem is one difference of an installed policy from the one that the scheduler was built with.
type problem struct {
	reason Reason
	// text describes the difference for people.
	text string
}

// compare returns the differences of the installed policy and its binding, either of which may be
// nil, from the shipped ones, and the variables that an administrator has set: lists of names,
// which administrators may change. It does not compare the texts of refusals, nor additional
// validations, which refuse more.
func compare(want guard, policy *admissionv1.ValidatingAdmissionPolicy,
	binding *admissionv1.ValidatingAdmissionPolicyBinding,
) (problems []problem, customized []string) {
	if policy == nil {
		problems = append(problems, problem{Missing, "it is not installed"})
	} else {
		problems, customized = comparePolicy(want, contentOf(policy))
	}
	return append(problems, compareBinding(want, binding)...), customized
}

func comparePolicy(shipped guard, got content) (problems []problem, customized []string) {
	want := contentOf(shipped.policy)
	customized = got.adopt(want)
	if apiequality.Semantic.DeepEqual(want, got) {
		return nil, customized
	}
	if got.isReleased(shipped.policy.Name) {
		return []problem{{Outdated, "it belongs to another release"}}, customized
	}
	add := func(reason Reason, format string, args ...any) {
		problems = append(problems, problem{reason, fmt.Sprintf(format, args...)})
	}
	if got.FailurePolicy != want.FailurePolicy {
		add(FailurePolicy, "its failurePolicy is %s, and must be %s", got.FailurePolicy, want.FailurePolicy)
	}
	if !apiequality.Semantic.DeepEqual(got.ParamKind, want.ParamKind) {
		add(Parameters, "its paramKind is %s, and must be %s", asJSON(got.ParamKind), asJSON(want.ParamKind))
	}
	if !apiequality.Semantic.DeepEqual(got.MatchConstraints, want.MatchConstraints) {
		add(MatchConstraints, "its matchConstraints are %s, and must be %s",
			asJSON(got.MatchConstraints), asJSON(want.MatchConstraints))
	}
	for _, text := range differences("matchCondition", expressions(want.MatchConditions),
		expressions(got.MatchConditions)) {
		add(MatchConditions, "%s", text)
	}
	wanted, customVariables := variables(want.Variables), variables(got.Variables)
	maps.DeleteFunc(customVariables, func(name, _ string) bool {
		_, shipped := wanted[name]
		return !shipped // no expression uses it
	})
	for _, text := range differences("variable", wanted, customVariables) {
		add(Variables, "%s", text)
	}
	for _, expression := range want.Validations {
		if !slices.Contains(got.Validations, expression) {
			add(Validations, "the validation %s is missing", expression)
		}
	}
	return problems, customized
}

func compareBinding(want guard, binding *admissionv1.ValidatingAdmissionPolicyBinding) []problem {
	if binding == nil {
		return []problem{{Unbound, "its binding is not installed"}}
	}
	if binding.Spec.PolicyName != want.policy.Name {
		return []problem{{Unbound, fmt.Sprintf("its binding is for the policy %q", binding.Spec.PolicyName)}}
	}
	var problems []problem
	if !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		problems = append(problems, problem{NotDenying, fmt.Sprintf(
			"its binding has the validationActions %v, and must have Deny", binding.Spec.ValidationActions)})
	}
	if got := bindingMatch(binding); !apiequality.Semantic.DeepEqual(got, bindingMatch(want.binding)) {
		problems = append(problems, problem{Narrowed, fmt.Sprintf(
			"its binding is limited by matchResources to %s, and must be %s",
			asJSON(got), asJSON(bindingMatch(want.binding)))})
	}
	if !apiequality.Semantic.DeepEqual(binding.Spec.ParamRef, want.binding.Spec.ParamRef) {
		problems = append(problems, problem{Parameters, fmt.Sprintf("its binding has the paramRef %s, and must have %s",
			asJSON(binding.Spec.ParamRef), asJSON(want.binding.Spec.ParamRef))})
	}
	return problems
}

// bindingMatch returns how a binding limits its policy, or nil for no limit.
func bindingMatch(binding *admissionv1.ValidatingAdmissionPolicyBinding) *admissionv1.MatchResources {
	binding = binding.DeepCopy()
	v1.SetObjectDefaults_ValidatingAdmissionPolicyBinding(binding)
	match := normalized(binding.Spec.MatchResources)
	if match == nil || match.NamespaceSelector == nil && match.ObjectSelector == nil &&
		len(match.ResourceRules)+len(match.ExcludeResourceRules) == 0 {
		return nil
	}
	return match
}

// nameList matches a CEL list of names, which administrators may change: the users that may write
// allocations, for example. Without expressions it cannot depend on the request.
var nameList = regexp.MustCompile(`^\s*\[\s*('[^'"\\]*'(\s*,\s*'[^'"\\]*')*)?\s*,?\s*\]\s*$`)

// adopt replaces variables that are lists of names by those of want, if these are such lists too.
// It returns the replaced values that differed.
func (c *content) adopt(want content) (customized []string) {
	wanted := variables(want.Variables)
	for i, variable := range c.Variables {
		expression := wanted[variable.Name]
		if variable.Expression != expression && nameList.MatchString(variable.Expression) &&
			nameList.MatchString(expression) {
			customized = append(customized, variable.Name+": "+strings.TrimSpace(variable.Expression))
			c.Variables[i].Expression = expression
		}
	}
	return customized
}

func variables(list []admissionv1.Variable) map[string]string {
	byName := make(map[string]string, len(list))
	for _, variable := range list {
		byName[variable.Name] = variable.Expression
	}
	return byName
}

func expressions(list []admissionv1.MatchCondition) map[string]string {
	byName := make(map[string]string, len(list))
	for _, condition := range list {
		byName[condition.Name] = condition.Expression
	}
	return byName
}

// differences describes how named expressions differ from the wanted ones.
func differences(what string, want, got map[string]string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch expression, ok := got[name]; {
		case !ok:
			found = append(found, fmt.Sprintf("its %s %q is missing", what, name))
		case expression != want[name]:
			found = append(found, fmt.Sprintf("its %s %q is %s, and must be %s", what, name, expression, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			found = append(found, fmt.Sprintf("its %s %q, %s, must not be there", what, name, got[name]))
		}
	}
	return found
}

// asJSON returns v as people write it.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	switch {
	case err != nil:
		return err.Error()
	case string(text) == "null":
		return "absent"
	}
	return string(text)
}
