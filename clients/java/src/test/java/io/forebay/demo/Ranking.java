/* The ranking: the top movies for one user, from a gathered matrix. */
package io.forebay.demo;

import com.google.gson.JsonArray;
import io.forebay.Document;
import io.forebay.FieldHandle;
import io.forebay.ForebayReader;
import io.forebay.GatherPlan;
import io.forebay.Key;
import io.forebay.Keys;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/**
 * A ranking for one user.
 *
 * @param user the user with the most ratings
 * @param candidates the movies with the most ratings
 * @param top the best candidates with their scores, best first
 */
record Ranking(long user, Keys candidates, JsonArray top) {
    private static final int CANDIDATES = 500;
    private static final int TOP = 10;
    private static final double PRIOR_RATINGS = 5.0;
    private static final double PRIOR_MEAN = 3.5;

    private record RankedKey(long key, double score) {}

    /**
     * Ranks the candidates. The score is a movie's mean rating, pulled to 3.5 if ratings are few,
     * times one plus the mean share of the user's ratings in the movie's genres. If scores are
     * equal, the smaller key is first.
     */
    static Ranking of(DemoReader.Readers readers, Dump movies, Dump users) {
        List<Long> keys = movies.mostRated(CANDIDATES);
        Keys candidates = Keys.of(keys.stream().map(Key::of).toList());
        long user = users.mostRated(1).get(0);
        Document counts = readers.users().getDocument(Key.of(user));
        if (counts == null) {
            throw new IllegalStateException("the user with the most ratings is absent");
        }
        GatherPlan plan = Measure.plan(readers.movies());
        double[] matrix = new double[candidates.size() * plan.width()];
        readers.movies().gather(plan, candidates, matrix, null, null);
        int count = Measure.GATHERED.indexOf("rating_count");
        int sum = Measure.GATHERED.indexOf("rating_sum");
        FieldHandle genres = readers.movies().field("genres");
        List<RankedKey> scored = new ArrayList<>();
        for (int place = 0; place < keys.size(); place++) {
            int row = place * plan.width();
            double mean =
                    (matrix[row + sum] + PRIOR_RATINGS * PRIOR_MEAN)
                            / (matrix[row + count] + PRIOR_RATINGS);
            long key = keys.get(place);
            double share = share(counts, genres(readers.movies(), genres, key));
            scored.add(new RankedKey(key, mean * (1.0 + share)));
        }
        scored.sort(
                Comparator.comparingDouble(RankedKey::score)
                        .reversed()
                        .thenComparing(RankedKey::key));
        return new Ranking(user, candidates, json(scored.subList(0, TOP)));
    }

    private static List<?> genres(ForebayReader movies, FieldHandle genres, long key) {
        if (movies.getValue(genres, Key.of(key)) instanceof List<?> found) {
            return found;
        }
        throw new IllegalStateException("a movie without its list of genres");
    }

    /** Returns the mean share of the user's ratings that fell to these genres. */
    private static double share(Document counts, List<?> genres) {
        long matched = 0;
        for (Object genre : genres) {
            String name = genre.toString().toLowerCase(Locale.ROOT).replace('-', '_');
            matched += counts.getLong("genre_" + name, 0);
        }
        double ratings = counts.getLong("rating_count", 0);
        return matched / (ratings * Math.max(genres.size(), 1));
    }

    private static JsonArray json(List<RankedKey> top) {
        JsonArray all = new JsonArray();
        for (RankedKey one : top) {
            JsonArray pair = new JsonArray();
            pair.add(one.key());
            pair.add(one.score());
            all.add(pair);
        }
        return all;
    }
}
