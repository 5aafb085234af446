"""What another ranker would earn, from the log of the first: items by id, their vectors beside the log.

python examples/value_of_another_ranker.py
"""

from pydoc_data.topics import topics  # Python's own manual

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import tacit
from tacit.logs import click_log

matrix = TfidfVectorizer(stop_words="english").fit_transform(topics.values())
first = tacit.Learner(tacit.ExplorationFloor(tacit.auto(relevance_dim=40), epsilon=0.3), seed=1)
first.items.put(list(topics), TruncatedSVD(40, random_state=1).fit_transform(matrix))
rng, ids = np.random.default_rng(1), np.array(list(topics))
offers = [rng.choice(ids, 10, replace=False).tolist() for _ in range(4000)]
decisions, clicks = [], []
for offer in offers:  # these readers want to know of classes
    decisions.append(first.choose("home", arms=offer))
    wanted = topics[decisions[-1].arm].count("class") > 5
    clicks.append(float(rng.random() < (0.5 if wanted else 0.1)))
    first.learn(decisions[-1], clicks[-1])
log = click_log(first.policy, decisions, clicks, arms=offers)
other = tacit.Learner(tacit.auto(relevance_dim=40), seed=1).fit_log(log.slice(0, 2000), items=first.items)
print(tacit.off_policy(other, log.slice(2000), items=first.items))
