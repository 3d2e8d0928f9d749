// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

var (
	_ installation = cri{}
	_ installation = systemdNRI{}
	_ installation = agentNRI{}
)

// installation returns the one for a mode. agent says that the caller of Enrol starts kubecri.
func (e *Enrolment) installation(mode Mode, agent bool) installation {
	switch {
	case agent:
		return agentNRI{e}
	case mode == ModeNRI:
		return systemdNRI{units{e, []string{serviceUnit}}}
	default:
		return e.cri()
	}
}

func (e *Enrolment) cri() cri { return cri{units{e, []string{socketUnit, serviceUnit}}} }

// intended returns the installation that the options describe.
func (e *Enrolment) intended() installation {
	return e.installation(e.options.Mode, e.options.NRI != nil)
}

// recorded returns the installation that the journal describes.
func (e *Enrolment) recorded(j *journal) installation { return e.installation(j.mode(), j.NRI) }
