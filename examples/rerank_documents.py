"""Re-rank 100 retrieved documents by their embeddings: what is shown is learned from clicks.

python examples/rerank_documents.py
"""

import re
from pydoc_data.topics import topics  # Python's own manual

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import tacit

parts = [(f"{name} {i}", part) for name in topics for i, part in enumerate(re.split(r"\n\n+", topics[name]))]
texts = {name: part for name, part in parts if len(part) > 80}
words = TfidfVectorizer(stop_words="english", sublinear_tf=True)
matrix, ids = words.fit_transform(texts.values()), np.array(list(texts))
learner = tacit.Learner(tacit.auto(relevance_dim=64), seed=1)
learner.items.put(ids, TruncatedSVD(64, random_state=1).fit_transform(matrix))
queries = words.transform(["value", "expression", "statement", "object", "name"])
found = [ids[scores.argsort()[-100:]] for scores in (queries @ matrix.T).toarray()]
rng, clicks = np.random.default_rng(1), []
for _ in range(1500):  # these readers want to know of exceptions
    decision = learner.choose(arms=found[rng.integers(len(found))])
    wanted = re.search("exception|raise", texts[decision.arm])
    clicks.append(float(rng.random() < (0.5 if wanted else 0.05)))
    learner.learn(decision, clicks[-1])
print(f"clicks: {np.mean(clicks[:100]):.2f} at first, {np.mean(clicks[-500:]):.2f} at last")
